"""Checks on the results of a submission's trials, over all models of the competition.

As in the rules of the competition, a trial that failed counts as one that does not meet the criterion.
"""

import re
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

from pcgeval.checks.evidence import (
    CheckResult,
    Count,
    Document,
    Evidence,
    ModelEvidence,
    NotMet,
    Share,
    Text,
    TrialEvidence,
    Undecided,
    yes_or_no,
)
from pcgeval.formats.stages import STAGE_NAMES, StageName
from pcgeval.formats.trials import FlagKind, TrialUsage, best_levels
from pcgeval.submissions.load import PLACEHOLDER, prompt_findings

_SEPARATORS = re.compile(r"[\s_-]+")
_PASSED_BY_PROGRAMS = CheckResult(1.0, "a program; the rule is for prompts")


def trials_pass(evidence: Evidence, *, stage: StageName) -> CheckResult:
    """Share of the trials that passed a stage and all stages before it."""
    return _share_of_trials(evidence, _passes(stage), f"trials passed {stage}")


def trials_without(evidence: Evidence, *, stage: StageName, reason: Text) -> CheckResult:
    """Share of the trials that did not fail in a stage for a reason that contains a text."""

    def spared(trial: TrialEvidence) -> bool:
        failed = trial.failure
        return not failed or failed.type.stage != stage or reason.casefold() not in failed.sentence.casefold()

    return _share_of_trials(evidence, spared, f"trials did not fail in {stage} over {reason!r}")


def models_pass(evidence: Evidence, *, stage: StageName, at_least: Share) -> CheckResult:
    """Share of the models with which at least such a share of the trials passed a stage."""
    passes = _passes(stage)
    shares = {of.model: sum(map(passes, of.trials)) / len(of.trials) for of in _models(evidence)}
    good = sum(passed >= at_least for passed in shares.values())
    figures = ", ".join(f"{model} {passed:.2f}" for model, passed in shares.items())
    words = f"models with at least {at_least:g} of the trials past {stage} ({figures})"
    return CheckResult(good / len(shares), f"{good} of {len(shares)} {words}")


def letters_pass(evidence: Evidence, *, stage: StageName) -> CheckResult:
    """Share of the letters (of each model) with at least one trial that passed a stage."""
    return _share_of_letters(evidence, _passes(stage), f"letters have a trial that passed {stage}")


def answers_without_loop(evidence: Evidence) -> CheckResult:
    """Share of the trials with a reply that has no `for` or `while` loop in its fenced code, which is not run."""
    words = "trials have a reply without a loop in its code"
    return _share_of_trials(evidence, lambda trial: trial.has_loop is False, words)


def answers_closed(evidence: Evidence) -> CheckResult:
    """Share of the trials with a reply that closes every fence it opens, so that no code is cut off."""
    words = "trials have a reply that closes its fences"
    return _share_of_trials(evidence, lambda trial: trial.has_open_fence is False, words)


def trials_stable(evidence: Evidence, *, at_least: Share) -> CheckResult:
    """Share of the trials with a level of at least this stability."""

    def is_stable(trial: TrialEvidence) -> bool:
        return trial.stability is not None and trial.stability >= at_least

    return _share_of_trials(evidence, is_stable, f"trials have a stability of at least {at_least:g}")


def mean_stability(evidence: Evidence) -> CheckResult:
    """Mean stability over all trials."""
    return _mean([trial.stability for trial in _trials(evidence)], "stability")


def trials_on_top(evidence: Evidence) -> CheckResult:
    """Share of the trials with a level that the classifier takes for the intended letter."""
    return _share_of_trials(evidence, lambda trial: trial.on_top, "trials look most like their letter")


def letters_on_top(evidence: Evidence) -> CheckResult:
    """Share of the letters (of each model) with at least one level that the classifier takes for that letter."""
    return _share_of_letters(evidence, lambda trial: trial.on_top, "letters have a level that looks most like them")


def mean_similarity(evidence: Evidence) -> CheckResult:
    """Mean probability of the target letter over all trials."""
    return _mean([trial.similarity for trial in _trials(evidence)], "similarity")


def letters_diverse(evidence: Evidence, *, above: Share = 0.0) -> CheckResult:
    """Share of the letters (of all models) with a diversity above a value."""
    diversities = {f"{of.model} {letter}": rate for of in _models(evidence) for letter, rate in of.diversity.items()}
    diverse = [(name, rate > above) for name, rate in diversities.items()]
    return _share(diverse, f"letters have a diversity above {above:g}")


def trials_without_flag(evidence: Evidence, *, kind: FlagKind) -> CheckResult:
    """Share of the trials, failed ones too, without a flag of this kind, which asks a person to inspect the trial."""
    trials = _recorded_trials(evidence)
    flagged: list[tuple[str, bool]] = []
    unseen = 0  # trials whose contacts nobody has seen
    for trial, usage in trials:
        flag = usage.flag(kind)
        unseen += not usage.contained and not flag
        flagged.append((f"{trial.name} ({flag.detail[:200]})" if flag else trial.name, not flag))
    if kind == "other-host" and unseen:
        raise Undecided(f"{unseen} of {len(trials)} trials ran without a sandbox, so their contacts are unknown")
    return _share(flagged, f"trials are without the flag {kind}")


def best_levels_not_supplied(evidence: Evidence, *, at_most: Share) -> CheckResult:
    """Of the best levels, one a letter over all models, at most this share is supplied whole.

    All calls of such a level stood together in the submission's messages before the model gave them.
    """
    levels = [
        (trial.trial.letter, (trial.stability or 0.0) * (trial.similarity or 0.0), usage.supplied.whole)
        for trial, usage in _recorded_trials(evidence)
    ]
    number, supplied = best_levels(levels)
    words = f"{supplied} of {number} best levels stood call for call in the submission's messages first"
    return yes_or_no(supplied <= at_most * number, f"{words}; at most a share of {at_most:g} is asked for")


def _recorded_trials(evidence: Evidence) -> list[tuple[TrialEvidence, TrialUsage]]:
    trials = _trials(evidence)
    recorded = [(trial, trial.usage) for trial in trials if trial.usage is not None]
    if unknown := len(trials) - len(recorded):
        raise Undecided(f"{unknown} of {len(trials)} responses have no record of how they came about")
    return recorded


def _models(evidence: Evidence) -> tuple[ModelEvidence, ...]:
    if evidence.no_results:
        raise Undecided(f"no results: {evidence.no_results}")
    return evidence.models


def _trials(evidence: Evidence) -> list[TrialEvidence]:
    return [trial for model in _models(evidence) for trial in model.trials]


def _passes(stage: StageName) -> Callable[[TrialEvidence], bool]:
    later = STAGE_NAMES[STAGE_NAMES.index(stage) + 1 :]
    return lambda trial: trial.failed_stage is None or trial.failed_stage in later


def _share_of_trials(evidence: Evidence, met: Callable[[TrialEvidence], bool], words: str) -> CheckResult:
    def name(trial: TrialEvidence) -> str:
        return f"{trial.name} ({trial.failure.sentence[:200]})" if trial.failure else trial.name

    return _share([(name(trial), met(trial)) for trial in _trials(evidence)], words)


def _share_of_letters(evidence: Evidence, met: Callable[[TrialEvidence], bool], words: str) -> CheckResult:
    """A letter counts when any of its trials with that model meets the condition."""
    best: dict[str, bool] = {}
    for trial in _trials(evidence):
        name = f"{trial.model} {trial.trial.letter}"
        best[name] = best.get(name, False) or met(trial)
    return _share(list(best.items()), words)


def _share(met: Sequence[tuple[str, bool]], words: str) -> CheckResult:
    """Return the share of names with a condition that is met: "71 of 78 trials have code; first otherwise: ..."."""
    failing = [name for name, is_met in met if not is_met]
    example = f"; first otherwise: {failing[0]}" if failing else ""
    number = len(met) - len(failing)
    return CheckResult(number / len(met), f"{number} of {len(met)} {words}{example}")


def _mean(values: Sequence[float | None], name: str) -> CheckResult:
    total = reduce(add, (value or 0.0 for value in values))  # Python's `sum` rounds differently from version 3.12 on
    mean, with_level = total / len(values), sum(value is not None for value in values)
    return CheckResult(mean, f"mean {name} {mean:.4f} over {len(values)} trials, {with_level} of them with a level")


def readme_length(evidence: Evidence, *, at_least_words: Count = 1) -> CheckResult:
    """README.md is text and has at least so many words."""
    words, name = len(_text(evidence.readme).split()), evidence.readme.name
    return yes_or_no(words >= at_least_words, f"{name} has {words} words; {at_least_words} are asked for")


def readme_names_team(evidence: Evidence) -> CheckResult:
    """README.md names the team; upper and lower case, hyphens, underscores and spaces count as the same."""
    text, team = (_SEPARATORS.sub(" ", name.casefold()) for name in (_text(evidence.readme), evidence.team))
    is_named = re.search(rf"\b{re.escape(team)}\b", text) is not None
    return yes_or_no(is_named, f"README.md {'names' if is_named else 'does not name'} the team {evidence.team!r}")


def readme_mentions(evidence: Evidence, *, text: Text) -> CheckResult:
    """README.md contains a text, in upper or lower case."""
    return _mentions(evidence.readme, text)


def prompt_length(evidence: Evidence) -> CheckResult:
    """The prompt has words, and no more than the rules of the competition allow."""
    if evidence.is_program:
        return _PASSED_BY_PROGRAMS
    words = len(_text(evidence.prompt).split())
    return yes_or_no(0 < words <= evidence.prompt_words, f"{words} words; 1 to {evidence.prompt_words} are allowed")


def prompt_characters(evidence: Evidence) -> CheckResult:
    """The prompt has only the characters that the rules of the competition allow."""
    if evidence.is_program:
        return _PASSED_BY_PROGRAMS
    # with the token and without a word limit, only the characters are left to object to
    text = _text(evidence.prompt) + PLACEHOLDER
    findings = prompt_findings(text, words=len(text))
    return yes_or_no(not findings, "; ".join(findings) or "all characters are allowed")


def prompt_names_object(evidence: Evidence) -> CheckResult:
    """The prompt has the token that is replaced by the letter, spelt exactly."""
    if evidence.is_program:
        return _PASSED_BY_PROGRAMS
    count = _text(evidence.prompt).count(PLACEHOLDER)
    return yes_or_no(count > 0, f"prompt.txt has the token {PLACEHOLDER} {count} times")


def prompt_mentions(evidence: Evidence, *, text: Text) -> CheckResult:
    """The prompt, or any text or source of the program, contains a text, in upper or lower case."""
    return _mentions(evidence.prompt, text)


def _text(document: Document) -> str:
    if document.status == "unreadable":
        raise Undecided(document.reason)
    if document.status == "refused":
        raise NotMet(document.reason)
    return document.text


def _mentions(document: Document, text: str) -> CheckResult:
    is_mentioned = text.casefold() in _text(document).casefold()
    return yes_or_no(is_mentioned, f"{document.name} {'mentions' if is_mentioned else 'does not mention'} {text!r}")
