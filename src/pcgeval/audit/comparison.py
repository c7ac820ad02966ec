"""Compare two evaluated states: what changed in ranks, totals, models and letters, and why.

A team's score changes through its own measurements or through the letters' weights, which are means over all teams.
Both parts are computed by scoring the new measurements under the old weights. Why measurements changed follows from
what else differs: DVC's hashes tell at which stage a team's outputs begin to differ, if both states have them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from pcgeval.audit.states import EvaluatedState
from pcgeval.core.layout import stage_dir
from pcgeval.core.stage_files import RankedTeam, plain
from pcgeval.core.untrusted import printable_line, printable_name
from pcgeval.scoring.decimals import ZERO, divide, exact_arithmetic
from pcgeval.scoring.formulas import LetterScore, ModelScores, score_letter
from pcgeval.scoring.inputs import LetterResults, first_by_trial

CauseKind = Literal[
    "submission",  # the team handed in something else
    "model",  # another model answered: its digest, name or options
    "physics",
    "classifier",
    "rules",  # params.yaml, or the version of the rules of scoring
    "replies",  # the same question was answered otherwise
    "packages",  # numpy, torch and others in other versions
    "code",  # of pcgeval
    "teams",  # who takes part
    "decision",  # of the organiser about a team
    "weights",  # of the letters, through the other teams
    "others",  # only the other teams' totals
    "unknown",
]
Measure = Literal["stability", "similarity", "diversity"]
_MEASURES: tuple[Measure, ...] = ("stability", "similarity", "diversity")
_TRIALS = "trials"  # what the answers decide
_NOT_DECIDING = frozenset({"backend", "host", "hosts", "base_url", "keep_alive", "stream", "concurrency"})
# what a param can change: the trials' answers, a measure, the scores, or only the places
_AFFECTS: tuple[tuple[str, CauseKind, frozenset[str]], ...] = (
    ("competition.characters", "rules", frozenset({"scores"})),
    ("competition.trials", "rules", frozenset({"diversity", "scores"})),
    ("competition.seed", "rules", frozenset({_TRIALS})),
    ("limits.", "rules", frozenset({_TRIALS})),
    ("physics.", "physics", frozenset(_MEASURES)),
    ("similarity.model", "classifier", frozenset({"similarity", "diversity"})),
    ("similarity.revision", "classifier", frozenset({"similarity", "diversity"})),
    ("diversity.", "rules", frozenset({"diversity"})),
    ("scoring.official_quirks", "rules", frozenset({"scores"})),
    ("scoring.baseline", "rules", frozenset({"places"})),
    ("scoring.flagged", "rules", frozenset({"places"})),
)
_CODE: Mapping[str, frozenset[str]] = {  # by folder of the source
    **{f"src/pcgeval/{name}": frozenset({_TRIALS}) for name in ("generation", "llm", "sandbox", "submissions")},
    "src/pcgeval/levels": frozenset({_TRIALS, *_MEASURES}),
    "src/pcgeval/evaluator": frozenset(_MEASURES),
    "src/pcgeval/similarity": frozenset({"similarity", "diversity"}),
    "src/pcgeval/scoring": frozenset({"scores"}),
    "src/pcgeval/core": frozenset({_TRIALS, *_MEASURES, "scores"}),
    "src/pcgeval": frozenset({_TRIALS, *_MEASURES, "scores"}),
    "stages": frozenset({_TRIALS, *_MEASURES, "scores"}),
}
_BY_STRENGTH: tuple[frozenset[CauseKind], ...] = (  # a weaker explanation is given where there is no stronger one
    frozenset({"submission", "model", "physics", "classifier", "rules"}),
    frozenset({"replies"}),
    frozenset({"packages"}),
    frozenset({"code"}),
)
_WORDS: Mapping[CauseKind, str] = {
    "submission": "another submission",
    "model": "another model",
    "physics": "other physics",
    "classifier": "another classifier",
    "rules": "other rules",
    "replies": "other replies",
    "packages": "other packages",
    "code": "other code",
    "teams": "other teams",
    "decision": "a decision",
    "weights": "the letters' weights",
    "others": "the others' totals",
    "unknown": "unknown",
}
_HASH = 12  # digits of a hash that are shown


@dataclass(frozen=True)
class Cause:
    """Why something changed: a difference between the states, of all teams and models or of one.

    Attributes:
        detail: What differs, in words.
        affects: What it can change: `trials` (the answers), a measure, `scores` or `places`.
    """

    kind: CauseKind
    detail: str
    team: str | None = None
    model: str | None = None
    affects: frozenset[str] = frozenset()

    @property
    def scope(self) -> str:
        """Whose cause it is, such as `aa with m1`; empty if it is everybody's."""
        return " with ".join(each for each in (self.team, self.model) if each is not None)


def cause_words(causes: Iterable[Cause]) -> list[str]:
    """Return causes as people read them, those of a kind together."""
    found: dict[CauseKind, list[str]] = {}
    for cause in causes:
        found.setdefault(cause.kind, []).append(cause.detail)
    return [f"{_WORDS[kind]} ({'; '.join(dict.fromkeys(details))})" for kind, details in found.items()]


@dataclass(frozen=True)
class LetterChange:
    """A letter of a team with a model; a score is None in a state that does not have the letter.

    `measures` are those of the team's own measurements that changed.
    """

    letter: str
    before: Decimal | None
    after: Decimal | None
    measures: tuple[Measure, ...]
    causes: tuple[Cause, ...]


@dataclass(frozen=True)
class ModelChange:
    """A team's score with a model, None in a state without it.

    Attributes:
        own: The part of the change through the team's own measurements, under the old weights.
        through_weights: The rest, through the letters' weights. Both are None if the rules differ or a score is None.
        letters: Those that changed.
    """

    model: str
    before: Decimal | None
    after: Decimal | None
    own: Decimal | None
    through_weights: Decimal | None
    letters: tuple[LetterChange, ...]
    causes: tuple[Cause, ...]


@dataclass(frozen=True)
class TeamChange:
    """A team's line in both states, None where it has none; `causes` are those of its total, rank and status.

    Attributes:
        now_behind: The ranked teams that are ahead of it now and were not; none without two ranks.
        no_longer_behind: The ranked teams that were ahead of it and are not now.
    """

    team: str
    before: RankedTeam | None
    after: RankedTeam | None
    now_behind: tuple[str, ...]
    no_longer_behind: tuple[str, ...]
    models: tuple[ModelChange, ...]
    causes: tuple[Cause, ...]

    @property
    def changed(self) -> bool:
        """Whether its rank, status, total or a letter is another one."""
        return _standing(self.before) != _standing(self.after) or any(
            each.letters or each.before != each.after for each in self.models
        )

    @property
    def only_weights(self) -> bool:
        """Whether its scores changed through the other teams alone."""
        return bool(self.causes) and all(each.kind in {"weights", "others"} for each in self.causes)

    @property
    def own(self) -> Decimal | None:
        """The part of the change of its total through its own measurements; None where that cannot be told."""
        return _sum(each.own for each in self.models)

    @property
    def through_weights(self) -> Decimal | None:
        """The part of the change of its total through the letters' weights; None where that cannot be told."""
        return _sum(each.through_weights for each in self.models)

    @property
    def change(self) -> Decimal | None:
        """How much its total changed; None without one of the totals."""
        if self.before is None or self.after is None or self.before.total is None or self.after.total is None:
            return None
        with exact_arithmetic():
            return self.after.total - self.before.total


@dataclass(frozen=True)
class StateComparison:
    """Two states: what differs in what led to them, and each team, in the order of the later ranking.

    `notes` are reasons why a cause may not be found, or why a published figure is another than its tables make.
    """

    before: EvaluatedState
    after: EvaluatedState
    differences: tuple[Cause, ...]
    teams: tuple[TeamChange, ...]
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether no rank, total, score or letter changed."""
        return not any(each.changed for each in self.teams)

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for JSON; exact figures are texts."""
        return {
            "before": _named(self.before),
            "after": _named(self.after),
            "same": self.same,
            "differences": [_cause(each) for each in self.differences],
            "teams": [
                {
                    "team": each.team,
                    "changed": each.changed,
                    "before": _line(each.before),
                    "after": _line(each.after),
                    "now_behind": list(each.now_behind),
                    "no_longer_behind": list(each.no_longer_behind),
                    "change": _text(each.change),
                    "own": _text(each.own),
                    "through_weights": _text(each.through_weights),
                    "only_weights": each.only_weights,
                    "causes": [_cause(cause) for cause in each.causes],
                    "models": [
                        {
                            "model": model.model,
                            "before": _text(model.before),
                            "after": _text(model.after),
                            "own": _text(model.own),
                            "through_weights": _text(model.through_weights),
                            "causes": [_cause(cause) for cause in model.causes],
                            "letters": [
                                {
                                    "letter": letter.letter,
                                    "before": _text(letter.before),
                                    "after": _text(letter.after),
                                    "measures": list(letter.measures),
                                    "causes": [_cause(cause) for cause in letter.causes],
                                }
                                for letter in model.letters
                            ],
                        }
                        for model in each.models
                    ],
                }
                for each in self.teams
            ],
            "notes": list(self.notes),
        }


def _named(state: EvaluatedState) -> dict[str, str | None]:
    return {"name": state.name, "commit": state.commit, "result_hash": state.result_hash}


def _cause(cause: Cause) -> dict[str, str | None]:
    return {"kind": cause.kind, "detail": cause.detail, "team": cause.team, "model": cause.model}


def _line(row: RankedTeam | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "rank": row.rank,
        "status": row.status,
        "winner": row.winner,
        "total": _text(row.total),
        "normalised": _text(row.normalised),
    }


def _text(value: Decimal | None) -> str | None:
    return None if value is None else plain(value)


def _sum(values: Iterable[Decimal | None]) -> Decimal | None:
    found = list(values)
    known = [each for each in found if each is not None]
    with exact_arithmetic():
        return sum(known, ZERO) if len(known) == len(found) else None


def _standing(row: RankedTeam | None) -> tuple[Any, ...]:
    return () if row is None else (row.rank, row.status, row.winner, row.total, row.normalised)


def compare_states(before: EvaluatedState, after: EvaluatedState) -> StateComparison:
    """Compare two states of a competition, the earlier one first.

    Tables of a single model are compared whatever their folders are named.
    """
    if before.params is None and after.params is None and len(before.models) == len(after.models) == 1:
        after = after.with_model(before.models[0])
    differences = tuple(_differences(before, after))
    work = _Comparing(before, after, differences)
    names = dict.fromkeys([*after.teams, *before.teams])
    notes = [*before.notes, *after.notes, *_forged(before), *_forged(after)]
    return StateComparison(before, after, differences, tuple(work.team(name) for name in names), tuple(notes))


def _forged(state: EvaluatedState) -> Iterator[str]:
    """Yield where a state's ranking has other totals than its own tables make."""
    for total in state.scores.totals:
        row = state.teams.get(total.team)
        said = row.total if row else None
        if said != total.total:
            published = "no total" if said is None else f"the total {plain(said)}"
            yield f"{state.name}: its ranking has {published} for {total.team}, its tables make {plain(total.total)}"


def _differences(before: EvaluatedState, after: EvaluatedState) -> Iterator[Cause]:
    """Yield what differs between the states, as far as both know it."""
    for team in [team for team in (*before.teams, *after.teams) if not (team in before.teams and team in after.teams)]:
        words = "takes part" if team in after.teams else "takes part no longer"
        yield Cause("teams", f"{team} {words}", team=team, affects=frozenset({"scores"}))
    for team in (team for team in after.teams if team in before.teams):
        yield from _decisions(before.teams[team], after.teams[team])
        if before.submissions is not None and after.submissions is not None:
            changed = _changed(before.submissions.get(team, {}), after.submissions.get(team, {}))
            if changed:
                yield Cause("submission", _listed(changed), team=team, affects=frozenset({_TRIALS}))
    for model in sorted(set(before.models) ^ set(after.models)):
        words = "is asked" if model in after.models else "is asked no longer"
        yield Cause("model", f"{model} {words}", model=model, affects=frozenset({"scores"}))
    yield from _params(before, after)
    yield from _tools(before, after)
    yield from _replies(before, after)
    for folder, affects in _CODE.items() if before.code and after.code else ():
        if changed := _changed(before.code.get(folder, {}), after.code.get(folder, {})):
            names = [name.removeprefix(f"{folder}/") for name in changed]
            yield Cause("code", f"{folder}: {_listed(names)}", affects=affects)


def _replies(before: EvaluatedState, after: EvaluatedState) -> Iterator[Cause]:
    """Yield by team and model that recordings differ or, without these, what DVC found in the replies."""
    for model, team in sorted(before.replies.keys() & after.replies.keys()):
        one, other = before.replies[model, team], after.replies[model, team]
        made = [state.made.get(stage_dir("intermediate", model, team).as_posix()) for state in (before, after)]
        if one and other and one != other:
            yield Cause("replies", "recorded anew", team, model, frozenset({_TRIALS}))
        elif not (one and other) and None not in made and made[0] != made[1]:
            yield Cause("replies", "other code in them, by dvc.lock", team, model, frozenset({_TRIALS}))


def _tools(before: EvaluatedState, after: EvaluatedState) -> Iterator[Cause]:
    """Yield another engine, classifier or version of the rules."""
    if None not in {before.engine, after.engine} and before.engine != after.engine:
        yield Cause("physics", f"engine {before.engine} -> {after.engine}", affects=frozenset(_MEASURES))
    if before.classifier is not None and after.classifier is not None and before.classifier != after.classifier:
        detail = f"{_classifier(before.classifier)} -> {_classifier(after.classifier)}"
        yield Cause("classifier", detail, affects=frozenset({"similarity", "diversity"}))
    for name in sorted(before.packages.keys() & after.packages.keys()):
        one, other = (" and ".join(each.packages[name]) for each in (before, after))
        if one != other:
            yield Cause("packages", f"{name} {one} -> {other}", affects=frozenset(_MEASURES))
    if None not in {before.rules_version, after.rules_version} and before.rules_version != after.rules_version:
        detail = f"version {before.rules_version} -> {after.rules_version} of the rules of scoring"
        yield Cause("rules", detail, affects=frozenset({"scores"}))
    one, other = (f"{each.rules.letters} x {each.rules.trials}" for each in (before, after))
    if one != other and (before.params is None or after.params is None):
        yield Cause("rules", f"letters x trials {one} -> {other}", affects=frozenset({"diversity", "scores"}))


def _decisions(before: RankedTeam, after: RankedTeam) -> Iterator[Cause]:
    if before.status != after.status:
        reason = f": {printable_line(after.disqualified)}" if after.disqualified else ""
        detail = f"{before.status} -> {after.status}{reason}"
        yield Cause("decision", detail, team=after.team, affects=frozenset({"places", "scores"}))


def _params(before: EvaluatedState, after: EvaluatedState) -> Iterator[Cause]:
    """Yield the values of params.yaml that differ and can change a result."""
    one, other = before.params, after.params
    if one is None or other is None:
        return
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) == other.get(name):
            continue
        detail = f"{_value(one.get(name))} -> {_value(other.get(name))}"
        section, _, rest = name.partition(".")
        if section == "models":
            model, _, setting = rest.partition(".")
            both = model in before.models and model in after.models
            if both and setting.split(".")[0] not in _NOT_DECIDING:
                yield Cause("model", f"{setting} {detail}", model=model, affects=frozenset({_TRIALS}))
            continue
        for start, kind, affects in _AFFECTS:
            if name.startswith(start):
                yield Cause(kind, f"{name} {detail}", affects=affects)


def _value(value: Any) -> str:
    text = printable_line(str(value))
    return text[:_HASH] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text


def _classifier(name: str) -> str:
    """Return a classifier's name with a short hash."""
    start, found, digits = name.partition("sha256:")
    return printable_line(start + found + digits[:_HASH])


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _listed(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(printable_name(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


class _Comparing:
    """Goes through two states from a team down to its letters."""

    def __init__(self, before: EvaluatedState, after: EvaluatedState, differences: tuple[Cause, ...]) -> None:
        self.before, self.after, self.differences = before, after, differences
        self.same_rules = before.rules.letters == after.rules.letters and all(
            getattr(before.rules, name) == getattr(after.rules, name) for name in ("trials", "official_quirks")
        )
        self.moved = {  # by model the teams whose own measurements changed, or that came or went
            model: [
                team
                for team in dict.fromkeys([*before.teams, *after.teams])
                if any(self.measures(model, team, letter) for letter in self.letters)
                or (self._measured(before, model, team) != self._measured(after, model, team))
            ]
            for model in dict.fromkeys([*before.models, *after.models])
        }

    @property
    def letters(self) -> str:
        """The letters of both states."""
        return "".join(dict.fromkeys(self.before.rules.letters + self.after.rules.letters))

    def team(self, team: str) -> TeamChange:
        """Return what changed for a team."""
        before, after = self.before.teams.get(team), self.after.teams.get(team)
        models = tuple(self._model(model, team) for model in dict.fromkeys([*self.after.models, *self.before.models]))
        models = tuple(each for each in models if each.before is not None or each.after is not None)
        causes = list(
            dict.fromkeys(
                replace(cause, model=None) if cause.kind == "weights" else cause
                for each in models
                for cause in each.causes
            )
        )
        own = [cause for cause in self.differences if cause.team == team and cause.kind in {"decision", "teams"}]
        causes = [*(cause for cause in own if cause not in causes), *causes]
        causes.sort(key=lambda cause: cause.kind in {"weights", "others"})
        if _standing(before) != _standing(after) and not causes:
            places = [
                cause
                for cause in self.differences
                if cause.team in {None, team} and ("places" in cause.affects or cause.kind == "submission")
            ]  # of equal totals, the shorter prompt is ahead
            causes = places or [Cause("others", "or who takes part")]
        ahead = [_ahead(each, team) for each in (self.before, self.after)]
        behind, no_longer = (
            (tuple(name for name in each if name not in other) for each, other in (ahead[::-1], ahead))
            if before and after and before.rank is not None and after.rank is not None
            else ((), ())
        )
        return TeamChange(team, before, after, behind, no_longer, models, tuple(causes))

    def _model(self, model: str, team: str) -> ModelChange:
        before, after = _scores_of(self.before, model), _scores_of(self.after, model)
        one, other = _letters_of(before, team), _letters_of(after, team)
        letters = []
        for letter in self.letters:
            old, new = (found[letter].score if letter in found else None for found in (one, other))
            measures = self.measures(model, team, letter)
            if old != new or measures:
                letters.append(LetterChange(letter, old, new, measures, self._causes(model, team, measures, old, new)))
        scores = [_prompt_score(each, team) for each in (before, after)]
        causes = tuple(dict.fromkeys(cause for each in letters for cause in each.causes))
        if scores[0] != scores[1] and not letters:
            causes = tuple(
                cause for cause in self.differences if "scores" in cause.affects and cause.model in {None, model}
            )
        own, rest = None, None
        if before and self.same_rules and scores[0] is not None and scores[1] is not None:
            measured = self.after.results.models[model][team]
            with exact_arithmetic():
                under_old = sum(
                    (score_letter(weight, measured, self.after.rules).score for weight in before.weights), ZERO
                )
                own = divide(under_old, len(before.weights)) - scores[0]
                rest = scores[1] - scores[0] - own
        return ModelChange(model, scores[0], scores[1], own, rest, tuple(letters), causes)

    def _causes(
        self, model: str, team: str, measures: tuple[Measure, ...], old: Decimal | None, new: Decimal | None
    ) -> tuple[Cause, ...]:
        """Return why a letter's measurements or its score changed."""
        causes = list(self._own_causes(model, team, measures)) if measures else []
        if old != new:
            causes += [
                cause
                for cause in self.differences
                if cause.kind in {"rules", "teams", "model", "decision"}
                and "scores" in cause.affects
                and (cause.team == team or cause.team is None)
                and cause.model in {None, model}
            ]
            others = [each for each in self.moved[model] if each != team]
            if others and not (old is None or new is None):
                names = _listed(others)
                causes.append(Cause("weights", f"through {names}", model=model))
            elif not measures and not causes:
                causes += [cause for cause in self.differences if cause.kind == "code" and "scores" in cause.affects]
                causes = causes or [
                    Cause("unknown", "the measurements and all that is known of the rules are the same")
                ]
        return tuple(dict.fromkeys(causes))

    def _own_causes(self, model: str, team: str, measures: tuple[Measure, ...]) -> Iterator[Cause]:
        """Yield what can have changed a team's measurements; weaker explanations only where there is no better one."""
        other_levels = self._made_otherwise("levels", model, team)
        same_pictures = self._made_otherwise("images", model, team) is False
        needed = {*measures, *((_TRIALS,) if other_levels is not False else ())}
        fitting = [
            cause
            for cause in self.differences
            if cause.team in {None, team}
            and cause.model in {None, model}
            and cause.affects & needed
            and not (cause.kind == "physics" and same_pictures and "stability" not in measures)
        ]
        found: list[Cause] = []
        for kinds in _BY_STRENGTH:
            found += [cause for cause in fitting if cause.kind in kinds]
            if found and (other_levels is not True or any(_TRIALS in cause.affects for cause in found)):
                break
        yield from found
        if not found:
            known = self.before.submissions is not None and self.after.submissions is not None
            what = "all that is known of what led to them is the same" if known else "nothing tells what led to them"
            yield Cause("unknown", f"other measurements; {what}", team, model)

    def _made_otherwise(self, stage: Literal["levels", "images"], model: str, team: str) -> bool | None:
        """Return whether the outputs of a stage differ, by DVC's hashes; None if these are not known."""
        path = stage_dir(stage, model, team).as_posix()
        one, other = self.before.made.get(path), self.after.made.get(path)
        return None if one is None or other is None else one != other

    def measures(self, model: str, team: str, letter: str) -> tuple[Measure, ...]:
        """Return which of a team's own measurements of a letter differ; trials that one state lacks are left out."""
        one, other = self._results(self.before, model, team, letter), self._results(self.after, model, team, letter)
        if one is None or other is None:
            return ()
        found: list[Measure] = []
        both: tuple[Measure, ...] = ("stability", "similarity")
        trials = range(1, min(self.before.rules.trials, self.after.rules.trials) + 1)
        for measure in both:
            values = [first_by_trial(getattr(each, measure)) for each in (one, other)]
            if any(values[0].get(trial, ZERO) != values[1].get(trial, ZERO) for trial in trials):
                found.append(measure)
        if one.diversity != other.diversity:
            found.append("diversity")
        return tuple(found)

    def _results(self, state: EvaluatedState, model: str, team: str, letter: str) -> LetterResults | None:
        if letter not in state.rules.letters or not self._measured(state, model, team):
            return None
        return state.results.models[model][team].letters.get(letter)

    def _measured(self, state: EvaluatedState, model: str, team: str) -> bool:
        return team in state.results.models.get(model, {})


def _ahead(state: EvaluatedState, team: str) -> list[str]:
    """Return the teams with a better rank than a team; none if it has no rank."""
    own = state.teams[team].rank if team in state.teams else None
    return [each.team for each in state.teams.values() if own and each.rank is not None and each.rank < own]


def _scores_of(state: EvaluatedState, model: str) -> ModelScores | None:
    return next((each for each in state.scores.models if each.model == model), None)


def _letters_of(scores: ModelScores | None, team: str) -> dict[str, LetterScore]:
    prompts = scores.prompts if scores else ()
    return {letter.letter: letter for prompt in prompts if prompt.team == team for letter in prompt.letters}


def _prompt_score(scores: ModelScores | None, team: str) -> Decimal | None:
    return next((each.score for each in scores.prompts if each.team == team), None) if scores else None
