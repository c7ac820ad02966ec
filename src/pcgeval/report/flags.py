"""What an inspector should look at: flagged trials, and programs that ran without a sandbox."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pcgeval.core.conduct import FLAG_KINDS, FlagKind
from pcgeval.report.anchors import flag_id, model_id, trial_id
from pcgeval.report.html import NOTHING, Html, element, joined
from pcgeval.report.overview import scrolling, title
from pcgeval.report.results import Evaluation, ModelResult, TeamResult, TrialResult
from pcgeval.report.words import count, flag_words

MOST_DETAILS = 3  # different ones, of one kind with one model
_MEANINGS: Mapping[FlagKind, str] = {
    "altered-answer": "the answer is not word for word a reply of the model",
    "invented-reply": "the program sent an assistant's message that the model never said",
    "other-host": "the program named or tried to reach another host",
    "unseeded-random": "the program draws random numbers without a seed",
}


@dataclass(frozen=True)
class _Flagged:
    """The trials of a team and model that have one kind of flag."""

    team: TeamResult
    model: ModelResult
    kind: FlagKind
    trials: tuple[TrialResult, ...]


def flags(evaluation: Evaluation) -> Html:
    """Return the table of flagged trials, and warnings of what ran or was made unwatched."""
    found = list(_flagged(evaluation))
    return element(
        "section",
        element("h2", "Flagged trials"),
        element(
            "p",
            "What was noticed in programs while they ran. A flag is a reason to look, not a verdict: it changes no "
            "score, and the organiser decides whether a team is disqualified (in its submission.yaml). All details of "
            "a trial stand in its record beside its response, below data/raw.",
            class_="lead",
        ),
        *(_unconfined(team) for team in evaluation.teams),
        _unrecorded(evaluation),
        _table(found) if found else element("p", "No trial is flagged."),
        id="flags",
    )


def _flagged(evaluation: Evaluation) -> Iterator[_Flagged]:
    for team in evaluation.teams:
        for model in team.models:
            for kind in FLAG_KINDS:
                if trials := tuple(trial for trial in model.trials if kind in trial.flag_kinds):
                    yield _Flagged(team, model, kind, trials)


def _unconfined(team: TeamResult) -> Html:
    free = sum(not trial.contained for trial in team.trials)
    if not free:
        return NOTHING
    return element(
        "p",
        element("b", "No sandbox. "),
        f"{title(team)} ran without one in {free} of {count(len(team.trials), 'trial')}, because programs were "
        "trusted: it could reach the network and this machine's files, and that nothing was flagged proves little.",
        class_="alarm",
    )


def _unrecorded(evaluation: Evaluation) -> Html:
    trials = [trial for team in evaluation.teams for trial in team.trials]
    without = sum(trial.conduct is None for trial in trials)
    if not without:
        return NOTHING
    return element("p", f"{without} of {count(len(trials), 'response')} have no record of how they came about.")


def _table(found: list[_Flagged]) -> Html:
    columns = ("team", "model", "flag", "trials", "first details")
    head = element("thead", element("tr", *(element("th", each, scope="col") for each in columns)))
    table = element("table", head, element("tbody", *(_row(each) for each in found)), class_="flagged")
    return scrolling(table, "Flagged trials")


def _row(flagged: _Flagged) -> Html:
    team, model, kind = flagged.team, flagged.model, flagged.kind
    number = joined([str(len(flagged.trials)), element("small", f"of {len(model.trials)}")])
    return element(
        "tr",
        element("th", element("a", team.row.team, href=f"#{model_id(team, model)}"), scope="row"),
        element("td", model.model),
        element("td", element("b", flag_words(kind)), element("small", _MEANINGS[kind])),
        element("td", number, class_="number"),
        element("td", element("ul", *_details(flagged))),
        id=flag_id(team, model, kind),
    )


def _details(flagged: _Flagged) -> Iterator[Html]:
    """Yield the first different details, each with the trial in which it was noticed first."""
    first: dict[str, TrialResult] = {}
    for trial in flagged.trials:
        for flag in trial.conduct.flags if trial.conduct else ():
            if flag.kind == flagged.kind and len(first) < MOST_DETAILS:
                first.setdefault(flag.detail, trial)
    for detail, trial in first.items():
        place = f"#{trial_id(flagged.team, flagged.model, trial.trial)}"
        yield element("li", element("a", f"{trial.trial.letter} {trial.trial.number}", href=place), f" {detail}")
