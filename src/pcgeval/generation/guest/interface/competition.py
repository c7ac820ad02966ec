"""Run a trial and ask the model, with the names and the behaviour of the competition's package.

What the official package does in the program's process happens in the broker's here: the model is asked, tokens and
seconds are counted and the answer is kept where the program cannot reach.
"""

from __future__ import annotations

import _random
import gc
import re
import sys
from hashlib import sha256
from typing import TYPE_CHECKING

from .models.trial_context import TrialContext, scratch_folder
from .models.trial_loop import TrialLoop
from .utils import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pcgeval.generation.guest import pcgeval_pipe
else:
    import pcgeval_pipe

__all__ = ["TrialContext", "TrialLoop", "chat_with_chatgpt", "chat_with_llm", "log", "run_evaluation"]

BASE_URL = "http://localhost/v1"  # nobody answers there
THIS_MACHINE = {"localhost", "127.0.0.1", "[::1]", "0.0.0.0"}  # noqa: S104 - compared, not bound
_ADDRESS = re.compile(r"https?://(?:[^/@]*@)?(\[[^]]*\]|[^:/?#<>]+)", re.IGNORECASE)
_REFUSALS = {"TimeoutError": TimeoutError, "ValueError": ValueError}
_started: list[str] = []


def run_evaluation(
    team_name: str,
    fn: Any,
    num_trials: int = 10,  # noqa: ARG001
    characters: Sequence[str] | None = None,  # noqa: ARG001
    model_name: str | None = None,  # noqa: ARG001
    local_model_base_url: str | None = None,
) -> None:
    """Run the one trial that this process is for, whatever number, letters, model and address the program names.

    Args:
        team_name: The program's name for itself; its files go by it.
        fn: A subclass of TrialLoop, or an instance of one.
        num_trials: Not used.
        characters: Not used.
        model_name: Not used.
        local_model_base_url: Not used; the broker is told if it is not this machine.
    """
    _tell_address(local_model_base_url)
    if _started:  # a program may evaluate several loops; the first is its entry
        return
    _started.append(team_name)
    try:
        ctx = _context(team_name)
        run = _runnable(fn)
        _renew_generators(pcgeval_pipe.trial()["chance"])
        answer = run(ctx, ctx.get_character())
        if isinstance(answer, str):
            pcgeval_pipe.tell_answer(answer)
        else:
            pcgeval_pipe.tell_failure(f"returned {_kind(answer)} from TrialLoop.run instead of a text")
    except BaseException as error:
        pcgeval_pipe.tell_failure(error)
        raise


def chat_with_llm(ctx: TrialContext, messages: list[Any], n: int = 1) -> list[str]:
    """Ask the model.

    Args:
        ctx: The trial.
        messages: The conversation, a list of dicts with `role` and `content`.
        n: How many replies are wanted.

    Returns:
        The `n` replies. Each reply to the same conversation has a seed of its own, which follows from the trial's.

    Raises:
        TimeoutError: The trial's seconds are used up.
        ValueError: The trial's tokens are used up, or the conversation is none.
    """
    reply = pcgeval_pipe.ask(messages, n)
    ctx.add_prompt_token_count(reply["prompt_tokens"])
    ctx.add_output_token_count(reply["output_tokens"])
    if "refused" in reply:
        raise _REFUSALS[reply["refused"]](reply["why"])
    texts: list[str] = reply["texts"]
    return texts


chat_with_chatgpt = chat_with_llm  # the first generation's name


def _context(team_name: str) -> TrialContext:
    trial = pcgeval_pipe.trial()
    folder = scratch_folder(team_name)
    log_file = folder.parent / "logs" / f"{folder.name}_raw.log"
    ctx = TrialContext(team_name, trial["letter"], trial["number"], log_file, trial["model"], BASE_URL)
    for each in (log_file.parent, ctx.get_output_folder_path()):
        each.mkdir(parents=True, exist_ok=True)
    log_file.touch()
    return ctx


def _renew_generators(chance: int) -> None:
    """Let the generators of random numbers that are there go on in another place in each trial.

    Officially one process runs all trials one after the other, so that what was seeded before the first goes on from
    trial to trial. Here each trial has a process. What a program seeds in `run` itself is the same in each trial, there
    as here.
    """
    numpy: Any = getattr(sys.modules.get("numpy.random"), "BitGenerator", None)
    if numpy is None and "random" not in sys.modules:
        return
    for each in gc.get_objects():
        kind = type(each)
        if issubclass(kind, _random.Random):
            _random.Random.seed(each, _renewed(_random.Random.getrandbits(each, 64), chance))
            if "gauss_next" in getattr(each, "__dict__", ()):
                each.gauss_next = None
        elif numpy is not None and issubclass(kind, numpy) and kind.__module__.startswith("numpy."):
            each.state = kind(_renewed(each.random_raw(), chance)).state


def _renewed(drawn: int, chance: int) -> int:
    return int.from_bytes(sha256(f"{drawn}/{chance}".encode()).digest()[:8], "big")


def _runnable(fn: Any) -> Callable[[TrialContext, str], object]:
    """Return the function to call: `run` of the class, or of an instance if it needs one."""
    declared: Any = next((vars(each)["run"] for each in getattr(fn, "__mro__", ()) if "run" in vars(each)), None)
    declared = getattr(declared, "__wrapped__", declared)
    needs_self = hasattr(declared, "__code__") and _required_arguments(declared) > len(("ctx", "target_character"))
    runnable: Callable[[TrialContext, str], object] = fn().run if needs_self else fn.run
    return runnable


def _required_arguments(function: Any) -> int:
    required: int = function.__code__.co_argcount - len(function.__defaults__ or ())
    return required


def _kind(answer: object) -> str:
    name = type(answer).__name__
    if name == "coroutine":
        answer.close()  # type: ignore[attr-defined]
        return "a coroutine (run must not be async)"
    return "nothing" if answer is None else f"a value of type {name}"


def _tell_address(url: object) -> None:
    found = _ADDRESS.match(url[:1000]) if isinstance(url, str) else None
    if found and found[1].lower() not in THIS_MACHINE:
        pcgeval_pipe.tell_contact(f"gave run_evaluation the address of {found[1]}, which was not used")
