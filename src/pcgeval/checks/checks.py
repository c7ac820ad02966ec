"""The checks that a rubric's leaf may name: criteria that a program decides from the evidence, without a judge.

A check is a function of the evidence and of keyword arguments, which the leaf gives. Each result is a share from 0 to
1 with the figures behind it. What cannot be told raises `Undecided`; it never counts as 0.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from pcgeval.checks import paper_checks, result_checks, submission_checks
from pcgeval.checks.evidence import CheckResult, Evidence, NotMet, PaperEvidence, Undecided

Argument = bool | int | float | str
CheckFunction = Callable[..., CheckResult]
_STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


@dataclass(frozen=True)
class LeafCheck:
    """A named check that a program can decide, with its arguments."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)


# every public function of these modules is a check
CHECKS: dict[str, CheckFunction] = {
    name: function
    for module in (submission_checks, result_checks, paper_checks)
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
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
    arguments = _arguments(check.name)
    try:
        arguments.model_validate(dict(check.arguments))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name, known = str(fault["loc"][0]), arguments.model_fields
        if fault["type"] == "missing":
            return f"argument {name!r} is missing. Add it."
        if name not in known:
            return f"unknown argument {name[:60]!r}. It takes: {', '.join(known) or 'none'}."
        choices = get_args(known[name].annotation)  # of a Literal; other types have a description
        wanted = known[name].description or f"one of: {', '.join(choices)}"
        return f"argument {name!r} is {check.arguments[name]!r:.60}. Give {wanted}."
    return None


@cache
def _arguments(check: str) -> type[BaseModel]:
    """Return a model of a check's arguments, which takes longer to make than to use."""
    parameters = list(inspect.signature(CHECKS[check]).parameters.values())[1:]
    fields: dict[str, Any] = {
        parameter.name: (parameter.annotation, ... if parameter.default is parameter.empty else parameter.default)
        for parameter in parameters
    }
    return create_model(check, __config__=_STRICT, **fields)
