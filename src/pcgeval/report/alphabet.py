"""The best level of each letter: what all teams and models together can build."""

from collections.abc import Iterator
from dataclasses import dataclass

from pcgeval.report.anchors import letter_id
from pcgeval.report.charts import level_picture
from pcgeval.report.html import Html, element
from pcgeval.report.results import Evaluation, ModelResult, TeamResult, TrialResult
from pcgeval.report.words import score_figure


@dataclass(frozen=True)
class _Found:
    team: TeamResult
    model: ModelResult
    trial: TrialResult


def alphabet(evaluation: Evaluation) -> Html:
    """Return the best level of each letter over all teams and models, each a link to its place below."""
    items = [_best_level(evaluation, letter) for letter in evaluation.params.competition.characters]
    return element(
        "section",
        element("h2", "The best level of each letter"),
        element("ul", *items, class_="alphabet"),
        id="alphabet",
    )


def _best_level(evaluation: Evaluation, letter: str) -> Html:
    best = max(_scored_levels(evaluation, letter), key=lambda found: found.trial.score or 0, default=None)
    if best is None:
        return element("li", element("span", class_="frame none", title="no level scored"), element("b", letter))
    trial = best.trial
    by = f"{best.team.row.team} with {best.model.model}, trial {trial.trial.number}"
    link = element(
        "a",
        element("span", level_picture(trial.blocks or ()), class_="frame"),
        element("b", letter),
        href=f"#{letter_id(best.team, best.model, letter)}",
        title=f"{letter}: {by}, trial score {score_figure(trial.score or 0)}",
    )
    return element("li", link)


def _scored_levels(evaluation: Evaluation, letter: str) -> Iterator[_Found]:
    for team in evaluation.scored_teams:
        for model in team.models:
            for trial in model.trials:
                if trial.trial.letter == letter and trial.score:
                    yield _Found(team, model, trial)
