"""The checks that a rubric's leaf may name: criteria that a program decides from the evidence, without a judge.

A check is a function of the evidence and of keyword arguments, which the leaf gives. Each result is a share from 0 to
1 with the figures behind it. What cannot be told raises `Undecided`; it never counts as 0.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import get_args

from pcgeval.checks import paper_checks, result_checks, submission_checks
from pcgeval.checks.check_result import CheckResult, NotMet, Undecided
from pcgeval.checks.evidence import Evidence, PaperEvidence
from pcgeval.checks.paper_checks import InnerPath, Number

Argument = bool | int | float | str
CheckFunction = Callable[..., CheckResult]
MAX_TEXT = 1000
MAX_COUNT = 1_000_000
MAX_NUMBER = 1e15


@dataclass(frozen=True)
class LeafCheck:
    """A named check that a program can decide, with its arguments."""

    name: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)


CHECKS: dict[str, CheckFunction] = {
    check.__name__: check
    for check in (
        submission_checks.readme_length,
        submission_checks.readme_names_team,
        submission_checks.readme_mentions,
        submission_checks.prompt_length,
        submission_checks.prompt_characters,
        submission_checks.prompt_names_object,
        submission_checks.prompt_mentions,
        result_checks.trials_pass,
        result_checks.trials_without,
        result_checks.models_pass,
        result_checks.letters_pass,
        result_checks.answers_without_loop,
        result_checks.answers_closed,
        result_checks.trials_stable,
        result_checks.mean_stability,
        result_checks.trials_on_top,
        result_checks.letters_on_top,
        result_checks.mean_similarity,
        result_checks.letters_diverse,
        result_checks.trials_without_flag,
        paper_checks.file_exists,
        paper_checks.file_words,
        paper_checks.without_blacklisted,
        paper_checks.reproduce_succeeded,
        paper_checks.log_matches,
        paper_checks.result_value,
        paper_checks.result_order,
        paper_checks.result_entries,
    )
}


def run_check(check: LeafCheck, evidence: Evidence | PaperEvidence) -> CheckResult:
    """Decide one criterion.

    Raises:
        Undecided: The evidence does not say, or is of the kind that the check is not made for.
    """
    function = CHECKS[check.name]
    kind = next(iter(inspect.signature(function).parameters.values())).annotation
    if not isinstance(evidence, kind):
        wanted = "an attempt to reproduce a paper" if kind is PaperEvidence else "a submission to the competition"
        raise Undecided(f"the check {check.name} is for {wanted}")
    try:
        return function(evidence, **check.arguments)
    except NotMet as reason:
        return CheckResult(0.0, str(reason))


def check_fault(check: LeafCheck) -> str | None:
    """Return what is wrong with the way in which a leaf names its check, or None."""
    if check.name not in CHECKS:
        close = difflib.get_close_matches(check.name[:80], CHECKS, n=1)
        return f"unknown. Did you mean {close[0]!r}?" if close else f"unknown. Known: {', '.join(sorted(CHECKS))}."
    parameters = dict(list(inspect.signature(CHECKS[check.name]).parameters.items())[1:])
    for name in check.arguments:
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            return f"unknown argument {name[:60]!r}. It takes: {known}."
    for name, parameter in parameters.items():
        if name not in check.arguments:
            if parameter.default is parameter.empty:
                return f"argument {name!r} is missing. Add it."
            continue
        if (message := _argument_fault(name, check.arguments[name], parameter.annotation)) is not None:
            return message
    return None


def _argument_fault(name: str, value: object, annotation: object) -> str | None:
    """Compare an argument with its annotation: text, a path, a stage's name, any number, a share, or a whole number."""
    if choices := get_args(annotation):
        return None if value in choices else f"argument {name!r} is {value!r:.60}. Give one of: {', '.join(choices)}."
    if annotation is str:
        usable = isinstance(value, str) and 0 < len(value) <= MAX_TEXT
        return None if usable else f"argument {name!r} is {value!r:.60}. Give a text of 1 to {MAX_TEXT} characters."
    if annotation is InnerPath:
        usable = isinstance(value, str) and 0 < len(value) <= MAX_TEXT and _is_inner_path(value)
        return None if usable else f"argument {name!r} is {value!r:.60}. Give a file's path below the submission."
    if annotation is Number:
        usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER
        return None if usable else f"argument {name!r} is {value!r:.60}. Give a number up to {MAX_NUMBER:g}."
    if isinstance(value, bool) or not isinstance(value, int | (int if annotation is int else float)):
        return f"argument {name!r} is {value!r:.60}. Give {'a whole' if annotation is int else 'a'} number."
    most = MAX_COUNT if annotation is int else 1
    return None if 0 <= value <= most else f"argument {name!r} is {value!r:.60}. Give a number from 0 to {most}."


def _is_inner_path(text: str) -> bool:
    path = PurePosixPath(text)
    return text.isprintable() and not path.is_absolute() and bool(path.parts) and ".." not in path.parts
