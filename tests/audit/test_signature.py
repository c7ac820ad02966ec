"""Signatures of manifests."""

import base64
import json
import sys

import pytest

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from pcgeval.audit.signature import SignatureError, key_names, sign, signature_fault
from pcgeval.core.packages import MissingPackageError

PAYLOAD = b'{"_type": "https://in-toto.io/Statement/v1"}\n'


def pem(key, password=None) -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def public_pem(key) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


KEY, OTHER = Ed25519PrivateKey.from_private_bytes(b"a" * 32), Ed25519PrivateKey.from_private_bytes(b"b" * 32)
ENVELOPE = sign(PAYLOAD, pem(KEY))


def test_a_signature_is_checked_by_its_key() -> None:
    assert signature_fault(ENVELOPE, PAYLOAD, public_pem(KEY)) is None
    assert sign(PAYLOAD, pem(KEY)) == ENVELOPE
    (name,) = key_names(ENVELOPE)
    assert len(name) == 64


def test_it_is_a_dsse_envelope() -> None:
    envelope = json.loads(ENVELOPE)
    assert base64.b64decode(envelope["payload"]) == PAYLOAD
    kind = "application/vnd.in-toto+json"
    assert envelope["payloadType"] == kind
    signed = f"DSSEv1 {len(kind)} {kind} {len(PAYLOAD)} ".encode() + PAYLOAD
    KEY.public_key().verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed)


def test_another_key_another_payload_and_another_type_are_faults() -> None:
    assert "not by the key" in signature_fault(ENVELOPE, PAYLOAD, public_pem(OTHER))
    assert "another manifest" in signature_fault(ENVELOPE, PAYLOAD + b" ", public_pem(KEY))
    typed = ENVELOPE.replace(b"vnd.in-toto+json", b"json")
    assert "another manifest" in signature_fault(typed, PAYLOAD, public_pem(KEY))


@pytest.mark.parametrize(
    "envelope", [b"", b"{}", b"[]", b"\xff", b"[" * 10_000, ENVELOPE.replace(b'"sig": "', b'"sig": "*')]
)
def test_what_is_no_envelope_is_a_fault(envelope: bytes) -> None:
    assert "no DSSE envelope" in signature_fault(envelope, PAYLOAD, public_pem(KEY))


def test_every_changed_byte_of_an_envelope_is_a_fault_or_does_not_matter() -> None:
    for place in range(len(ENVELOPE)):
        changed = bytearray(ENVELOPE)
        changed[place] ^= 1
        fault = signature_fault(bytes(changed), PAYLOAD, public_pem(KEY))
        same = json.loads(ENVELOPE)
        if fault is None:  # white space, or the key's name, which nobody has to believe
            found = json.loads(changed)
            del found["signatures"][0]["keyid"], same["signatures"][0]["keyid"]
            assert base64.b64decode(found["payload"]) == PAYLOAD
            assert found == same


def test_no_signatures_are_a_fault() -> None:
    envelope = json.loads(ENVELOPE) | {"signatures": []}
    assert signature_fault(json.dumps(envelope).encode(), PAYLOAD, public_pem(KEY))


@pytest.mark.parametrize("key", [b"", b"text", public_pem(KEY), pem(generate_private_key(SECP256R1()))])
def test_a_file_that_is_no_private_key_is_named_with_a_way_to_make_one(key: bytes) -> None:
    with pytest.raises(SignatureError, match="openssl genpkey"):
        sign(PAYLOAD, key)


def test_a_key_with_a_passphrase_is_refused() -> None:
    with pytest.raises(SignatureError, match="passphrase"):
        sign(PAYLOAD, pem(KEY, b"secret"))


@pytest.mark.parametrize("key", [b"", b"text", pem(KEY), public_pem(generate_private_key(SECP256R1()))])
def test_a_file_that_is_no_public_key_is_named(key: bytes) -> None:
    with pytest.raises(SignatureError, match="public Ed25519 key"):
        signature_fault(ENVELOPE, PAYLOAD, key)


def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(MissingPackageError, match=r"pcgeval\[bundle\]"):
        sign(PAYLOAD, pem(KEY))
