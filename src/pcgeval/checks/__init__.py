"""The checks that a rubric's leaf may name: criteria that a program decides, without a judge or a model.

A check is a function of the evidence and of keyword arguments, which the leaf gives. Each result is a share from 0 to
1 with the figures behind it. A check that cannot tell raises `Undecided`, which never counts as 0.
Nothing here imports a model or a judge.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, create_model

from pcgeval.checks import competition_checks, paper_checks
from pcgeval.checks.evidence import CheckResult, Evidence, NotMet, PaperEvidence, Undecided

Argument = bool | int | float | str
_STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
# every public function of these modules is a check
CHECKS: dict[str, Callable[..., CheckResult]] = {
    name: function
    for module in (competition_checks, paper_checks)
    for name, function in vars(module).items()
    if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
}


@dataclass(frozen=True)
class LeafCheck:
    """A named check with its arguments."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)


def run_check(check: LeafCheck, evidence: Evidence | PaperEvidence) -> CheckResult:
    """Decide one criterion; raise Undecided if the evidence does not say, or is of another kind than the check's."""
    function = CHECKS[check.name]
    kind = next(iter(inspect.signature(function).parameters.values())).annotation
    if not isinstance(evidence, kind):
        wanted = "an attempt to reproduce a paper" if kind is PaperEvidence else "a submission to the competition"
        raise Undecided(f"the check {check.name} is for {wanted}")
    try:
        return function(evidence, **check.arguments)
    except NotMet as reason:
        return CheckResult(0.0, str(reason))


def known_check(check: LeafCheck) -> LeafCheck:
    """Return a check that exists, with arguments that it takes; raise ValueError with the fault otherwise."""
    name = f"{check.name!r:.80}"
    if check.name not in CHECKS:
        close = difflib.get_close_matches(check.name[:80], CHECKS, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(sorted(CHECKS))}."
        raise ValueError(f"unknown check {name}. {hint}")
    model = _arguments(check.name)
    try:
        model.model_validate(dict(check.arguments))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        given = "" if fault["type"] == "missing" else f", found {fault['input']!r:.60}"
        takes = ", ".join(model.model_fields) or "no arguments"
        raise ValueError(f"check {name}: {fault['loc'][0]!r:.60}: {fault['msg']}{given}. It takes {takes}.") from error
    return check


Check = Annotated[LeafCheck, AfterValidator(known_check)]
"""A check as a file names it."""


@cache
def _arguments(check: str) -> type[BaseModel]:
    """Return the model of a check's arguments; it is slow to build and quick to use."""
    parameters = list(inspect.signature(CHECKS[check]).parameters.values())[1:]
    fields: dict[str, Any] = {
        parameter.name: (parameter.annotation, ... if parameter.default is parameter.empty else parameter.default)
        for parameter in parameters
    }
    return create_model(check, __config__=_STRICT, **fields)
