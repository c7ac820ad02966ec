"""The competition's interface as a program sees it, and the pipe over which the program asks the model and answers.

The official package asks the model, counts tokens and seconds and keeps the answer in the program's process. Here the
broker does so, where the program cannot reach. The pipe carries one JSON message per line.

`PCGEVAL_TRIAL` in the environment names the trial and the descriptor of the pipe. It is taken out of the environment,
so that Python processes which the program starts do not use the pipe. The sandbox imports this module once for many
trials, each of which then begins in a copy of that process.
"""  # noqa: INP001 - found through PYTHONPATH, as all here

from __future__ import annotations

import json
import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition
from traceback import format_exception_only, walk_tb
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from pcgeval.generation.guest import pcgeval_repeat
else:
    import pcgeval_repeat

__all__ = ["TrialContext", "TrialLoop", "chat_with_chatgpt", "chat_with_llm", "log", "run_evaluation"]

BASE_URL = "http://localhost/v1"  # nobody answers there
THIS_MACHINE = {"localhost", "127.0.0.1", "[::1]", "0.0.0.0"}  # noqa: S104 - compared, not bound
_ADDRESS = re.compile(r"https?://(?:[^/@]*@)?(\[[^]]*\]|[^:/?#<>]+)", re.IGNORECASE)
_REFUSALS = {"TimeoutError": TimeoutError, "ValueError": ValueError}

# the modules of the competition's packages, all of which are this one
competition = models = trial_context = trial_loop = utils = sys.modules[__name__]

_folder = Path()
_trial: dict[str, Any] | None = None
_calls: BinaryIO
_replies: BinaryIO
_lines = Condition()  # notified when a reply has arrived
_arrived: dict[int, dict[str, Any]] = {}  # replies by the number of the call, until their thread takes them
_asked = 0  # calls
_is_read = False  # whether a thread waits for the pipe's next line
_contacts: set[str] = set()
_is_started = False


def begin() -> None:
    """Take the trial out of the environment, before the program runs."""
    global _calls, _folder, _replies, _trial  # noqa: PLW0603
    _folder = Path.cwd()
    _trial = json.loads(os.environ.pop("PCGEVAL_TRIAL", "null"))
    if _trial is not None:
        pcgeval_repeat.seed_generators(_trial["chance"])
        pcgeval_repeat.set_clocks(_trial["chance"])
        _calls, _replies = open(_trial["pipe"], "wb"), open(_trial["pipe"], "rb", closefd=False)  # noqa: SIM115, PTH123


@dataclass(eq=False)
class TrialContext:
    """One trial. A program can plan with its counters; the broker's decide."""

    team_name: str
    character: str
    trial_number: int
    log_file_path: Path
    model_name: str | None = None
    local_model_base_url: str | None = None
    start_time: float = field(default_factory=lambda: time.perf_counter())  # noqa: PLW0108 - the trial's clock by then
    prompt_token_count: int = 0
    output_token_count: int = 0

    def get_team_name(self) -> str:
        """Return the name that the program gave itself."""
        return self.team_name

    def get_character(self) -> str:
        """Return the letter that is asked for."""
        return self.character

    def get_trial_number(self) -> int:
        """Return the number of the trial, from 1."""
        return self.trial_number

    def get_start_time(self) -> float:
        """Return when the trial started, in seconds on the clock of time.perf_counter."""
        return self.start_time

    def get_log_file_path(self) -> Path:
        """Return a file that the program may append to; it vanishes with the trial."""
        return self.log_file_path

    def get_output_folder_path(self) -> Path:
        """Return a folder that the program may write to; it vanishes with the trial."""
        return _scratch_folder(self.team_name) / "raw" / self.character

    def get_output_file_path(self) -> Path:
        """Return the name that the official package writes the answer to; here the broker takes it."""
        name = _scratch_folder(self.team_name).name
        return self.get_output_folder_path() / f"{name}_{self.character}_{self.trial_number}.txt"

    def add_prompt_token_count(self, count: int) -> None:
        """Count tokens of a prompt."""
        self.prompt_token_count += count

    def add_output_token_count(self, count: int) -> None:
        """Count tokens of a reply."""
        self.output_token_count += count

    def get_total_token_count(self) -> int:
        """Return the tokens of all prompts and replies so far."""
        return self.prompt_token_count + self.output_token_count

    def get_model_name(self) -> str | None:
        """Return the name of the model that answers."""
        return self.model_name

    def get_local_model_base_url(self) -> str | None:
        """Return an address at which nobody answers: the model is reached through the interface alone."""
        return self.local_model_base_url


class TrialLoop(ABC):
    """The base class of a program that makes one level."""

    @staticmethod
    @abstractmethod
    def run(ctx: TrialContext, target_character: str) -> str:
        """Return the answer of one trial: text with a code block of drop_block calls for the character."""


def run_evaluation(
    team_name: str,
    fn: Any,
    num_trials: int = 10,  # noqa: ARG001
    characters: Sequence[str] | None = None,  # noqa: ARG001
    model_name: str | None = None,  # noqa: ARG001
    local_model_base_url: str | None = None,
) -> None:
    """Run the one trial of this process with a subclass of TrialLoop, or an instance of one.

    The program's files go by `team_name`. The other arguments change nothing; the broker is told of an address that is
    not this machine's. Of several evaluations in a program the first counts.
    """
    global _is_started  # noqa: PLW0603
    address = _ADDRESS.match(str(local_model_base_url or "")[:1000])
    if address and address[1].lower() not in THIS_MACHINE:
        tell_contact(f"gave run_evaluation the address of {address[1]}, which was not used")
    if _is_started:
        return
    _is_started = True
    try:
        context = _context(team_name)
        pcgeval_repeat.renew_generators(_own_trial()["chance"])
        pcgeval_repeat.clock.run()
        answer = fn.run(context, context.get_character())
        if not isinstance(answer, str):
            raise TypeError(f"TrialLoop.run returned a {type(answer).__name__} instead of a text")  # noqa: TRY301
        _send({"op": "answer", "text": answer})
    except BaseException as error:
        _send({"op": "failure", "text": _description(error)})
        raise


def chat_with_llm(ctx: TrialContext, messages: list[Any], n: int = 1) -> list[str]:
    """Ask the model for `n` replies to a conversation, a list of dicts with `role` and `content`.

    Raises TimeoutError after the trial's seconds, and ValueError after its tokens or for no conversation.
    """
    reply = _answered({"op": "chat", "messages": messages, "n": n})
    pcgeval_repeat.clock.run(reply["at"])
    ctx.add_prompt_token_count(reply["prompt_tokens"])
    ctx.add_output_token_count(reply["output_tokens"])
    if "refused" in reply:
        raise _REFUSALS[reply["refused"]](reply["why"])
    texts: list[str] = reply["texts"]
    return texts


chat_with_chatgpt = chat_with_llm  # the first generation's name


def log(log_path: str | Path, message: object) -> None:
    """Append a line with the time to a log file."""
    with Path(log_path).open("a", encoding="utf-8") as file:
        file.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {message}\n")


def tell_contact(text: str) -> None:
    """Report once that the program tried to reach another machine."""
    if _trial is not None and text not in _contacts:
        _contacts.add(text)
        _send({"op": "contact", "text": text[:300]})


def _answered(call: dict[str, object]) -> dict[str, Any]:
    """Return the reply to a call; of several threads that wait, one reads for all."""
    global _asked, _is_read  # noqa: PLW0603
    with _lines:
        number = _asked = _asked + 1
        _send({**call, "id": number})
        while number not in _arrived:
            if _is_read:
                _lines.wait()
                continue
            _is_read = True
            _lines.release()
            try:
                line = _replies.readline()
            finally:
                _lines.acquire()
                _is_read = False
                _lines.notify_all()
            if not line.endswith(b"\n"):
                raise ConnectionError("pcgeval has ended this trial")
            reply = json.loads(line)
            _arrived[reply["id"]] = reply
        return _arrived.pop(number)


def _send(message: dict[str, object]) -> None:
    most = _own_trial()["line_bytes"]
    line = json.dumps(message).encode() + b"\n"
    if len(line) > most:
        raise ValueError(f"a message of {len(line)} bytes is over the limit of {most}")
    _calls.write(line)
    _calls.flush()


def _own_trial() -> dict[str, Any]:
    if _trial is None:
        raise RuntimeError("the competition's packages work only where pcgeval runs the program: `pcgeval try PROGRAM`")
    return _trial


def _context(team_name: str) -> TrialContext:
    trial, folder = _own_trial(), _scratch_folder(team_name)
    log_file = folder.parent / "logs" / f"{folder.name}_raw.log"
    context = TrialContext(team_name, trial["letter"], trial["number"], log_file, trial["model"], BASE_URL)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    context.get_output_folder_path().mkdir(parents=True, exist_ok=True)
    log_file.touch()
    return context


def _scratch_folder(team_name: str) -> Path:
    """Return the team's folder where writing is allowed."""
    name = re.sub(r"[^\w.-]", "_", str(team_name)[:64]).lstrip(".")
    return Path(os.environ.get("TMPDIR") or "/tmp", name or "team")  # noqa: S108 - in the sandbox, the program's alone


def _description(error: BaseException) -> str:
    """Return the error's type and message as Python prints them, and the last line of the program's files that ran."""
    if isinstance(error, SystemExit):
        return "called sys.exit before it gave an answer" + (f": {error.code}" if error.code else "")
    places = [(_folder / frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    files = [(path, line) for path, line in places if path.is_relative_to(_folder) and os.path.isfile(path)]  # noqa: PTH113
    shown = [f" ({path.relative_to(_folder)}:{line})" for path, line in files[-1:]]
    # before it stand the lines of a SyntaxError's source, behind it an error's notes
    lines = format_exception_only(error)
    message = next((text for text in lines if not text.startswith(" ")), lines[-1])
    return message.strip()[:250] + "".join(shown)
