"""Talk to pcgeval from within a program: one JSON message a line.

`PCGEVAL_TRIAL` in the environment says which trial is run and which descriptors the pipe has. It is taken out of the
environment, so that Python processes which the program starts do not take themselves for it.
"""  # noqa: INP001 - found through PYTHONPATH, as all here

from __future__ import annotations

import json
import os
from _thread import allocate_lock  # a module less to load than with threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MAX_CONTACTS = 20  # that are told to the broker: it needs no more to be interested

_folder = os.getcwd()  # noqa: PTH109 - loading pathlib would take milliseconds
_trial: dict[str, Any] | None = json.loads(os.environ.pop("PCGEVAL_TRIAL", "null"))
_talking, _writing = allocate_lock(), allocate_lock()
_received = b""
_contacts: set[str] = set()


def trial() -> dict[str, Any]:
    """Return `letter`, `number` and `model` of the trial, `chance` for random numbers, and the pipe's descriptors."""
    if _trial is None:
        raise RuntimeError("the competition's packages work only where pcgeval runs the program: `pcgeval try PROGRAM`")
    return _trial


def ask(messages: object, n: object) -> dict[str, Any]:
    """Return the broker's answer to a call: `texts`, or `refused` and `why`; and `prompt_tokens`, `output_tokens`."""
    with _talking:
        _send({"op": "chat", "messages": messages, "n": n})
        answer: dict[str, Any] = json.loads(_receive())
        return answer


def tell_answer(text: str) -> None:
    """Hand in the trial's answer; the broker takes the first."""
    _send({"op": "answer", "text": text})


def tell_failure(error: BaseException | str) -> None:
    """Report why there is no answer: an exception, or a sentence about the program."""
    _send({"op": "failure", "text": error if isinstance(error, str) else _described(error)})


def tell_contact(text: str) -> None:
    """Report that the program tried to reach another machine; each is reported once."""
    if _trial is not None and text not in _contacts and len(_contacts) < MAX_CONTACTS:
        _contacts.add(text)
        _send({"op": "contact", "text": text[:300]})


def _send(message: dict[str, object]) -> None:
    line = json.dumps(message, default=_plain).encode() + b"\n"
    if len(line) > trial()["line_bytes"]:
        what = "a conversation" if message["op"] == "chat" else "an answer"
        raise ValueError(f"{what} of {len(line)} bytes is over the limit of {trial()['line_bytes']}")
    with _writing:
        while line:
            line = line[os.write(trial()["calls"], line) :]


def _receive() -> bytes:
    global _received
    parts = [_received]
    while b"\n" not in parts[-1]:
        parts.append(os.read(trial()["replies"], 65536))
        if not parts[-1]:
            raise ConnectionError("pcgeval has ended this trial")
    line, _, _received = b"".join(parts).partition(b"\n")
    return line


def _plain(value: Any) -> object:
    """Return a message object, such as the openai package has, as JSON values."""
    if hasattr(value, "model_dump"):
        plain: object = value.model_dump(exclude_none=True)
        return plain
    raise TypeError(f"a conversation consists of dicts and texts; this one has a {type(value).__name__}")


def _described(error: BaseException) -> str:
    """Return the last line that Python would print, and the last line of the program's own code that ran."""
    if isinstance(error, SystemExit):
        return "called sys.exit before it gave an answer" + (f": {error.code}" if error.code else "")
    from traceback import format_exception_only, walk_tb  # noqa: PLC0415 - most programs do not fail

    places = [(frame.f_code.co_filename, number) for frame, number in walk_tb(error.__traceback__)]
    own = [(name, number) for name, number in places if f"{os.path.abspath(name)}".startswith(f"{_folder}/")]  # noqa: PTH100
    lines = "".join(format_exception_only(type(error), error)).strip().splitlines()
    place = "".join(f" ({os.path.relpath(name, _folder)}:{number})" for name, number in own[-1:])
    return (lines[-1][:250] if lines else type(error).__name__) + place
