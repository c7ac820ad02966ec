"""A signature of a manifest: that of an Ed25519 key, in a DSSE envelope as in-toto prescribes.

The package cryptography is needed to sign and to check a signature, and for nothing else.
"""

import base64
import binascii
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes, to_json
from pcgeval.core.packages import packages_for

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_NO_KEY = (
    "the file is no {} Ed25519 key in PEM. Make one with `openssl genpkey -algorithm ed25519 -out key.pem`, "
    "and its public half with `openssl pkey -in key.pem -pubout -out public.pem`."
)


class SignatureError(PcgevalError):
    """A key cannot be used."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class _Signature(_Part):
    keyid: str
    sig: str


class Envelope(_Part):
    """A DSSE envelope: a payload and its signatures, each in base64."""

    payload: str
    payload_type: Annotated[str, Field(alias="payloadType")]
    signatures: tuple[_Signature, ...]


def sign(payload: bytes, private_key: bytes) -> bytes:
    """Return the envelope of a payload as JSON; the same payload and key give the same bytes.

    Args:
        payload: A statement of in-toto, as JSON.
        private_key: An Ed25519 key in PEM, without a passphrase.

    Raises:
        SignatureError: It is no such key.
        MissingPackageError: The extra `bundle` is not installed.
    """
    with packages_for("a signature"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        key = load_pem_private_key(private_key, None)
    except TypeError as error:
        raise SignatureError("the private key has a passphrase; give a file of the key without one.") from error
    except ValueError as error:
        raise SignatureError(_NO_KEY.format("private")) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(_NO_KEY.format("private"))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": _key_id(key.public_key()), "sig": base64.b64encode(key.sign(_signed(payload))).decode()}
        ],
    }
    return to_json(envelope).encode() + b"\n"


def key_names(envelope: bytes) -> tuple[str, ...]:
    """Return the ids of the keys that an envelope says it is signed by, unchecked; none if it is no envelope."""
    try:
        return tuple(each.keyid for each in Envelope.model_validate_json(envelope).signatures)
    except ValidationError:
        return ()


def signature_fault(envelope: bytes, payload: bytes, public_key: bytes) -> str | None:
    """Return why an envelope is no signature of a payload by a key, in words that follow it; None if it is one.

    Args:
        envelope: What `sign` returned, or an attacker made.
        payload: What must be signed.
        public_key: An Ed25519 key in PEM.

    Raises:
        SignatureError: The key cannot be used.
        MissingPackageError: The extra `bundle` is not installed.
    """
    with packages_for("a signature"):
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    try:
        key = load_pem_public_key(public_key)
    except ValueError as error:
        raise SignatureError(_NO_KEY.format("public")) from error
    if not isinstance(key, Ed25519PublicKey):
        raise SignatureError(_NO_KEY.format("public"))
    try:
        found = Envelope.model_validate_json(envelope)
        signed = base64.b64decode(found.payload, validate=True)
        signatures = [base64.b64decode(each.sig, validate=True) for each in found.signatures]
    except (ValidationError, binascii.Error, ValueError):
        return "is no DSSE envelope"
    if signed != payload or found.payload_type != PAYLOAD_TYPE:
        return "is of another manifest"
    for signature in signatures:
        try:
            key.verify(signature, _signed(payload))
        except InvalidSignature:
            continue
        return None
    return f"is not by the key {_key_id(key)[:12]}"


def _key_id(key: "Ed25519PublicKey") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415 - an extra

    return sha256_bytes(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _signed(payload: bytes) -> bytes:
    """Return the bytes that a DSSE signature is of."""
    return b"DSSEv1 %d %b %d %b" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
