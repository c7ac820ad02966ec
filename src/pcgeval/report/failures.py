"""What went wrong, step by step: how many trials each step lost, and the reasons that came up most."""

from collections import Counter

from pcgeval.report.anchors import model_id
from pcgeval.report.charts import Part, shade, stacked_bar
from pcgeval.report.html import NOTHING, Html, element, joined
from pcgeval.report.overview import scrolling
from pcgeval.report.results import Evaluation, ModelResult, TeamResult
from pcgeval.report.words import FAILED_STEPS, failed_step, reason_of

MOST_REASONS = 10


def failures(evaluation: Evaluation) -> Html:
    """Return the table of lost trials and the list of reasons."""
    columns: list[Html | str] = ["team", "model", "what became of the trials", _heading("a level", "made")]
    columns += [_heading(step.words, f"lost-{step.stage}") for step in FAILED_STEPS]
    rows = [_row(team, model) for team in evaluation.teams for model in team.models]
    table = element(
        "table",
        element("thead", element("tr", *(element("th", each, scope="col") for each in columns))),
        element("tbody", *rows),
        class_="failures warm",
    )
    return element(
        "section",
        element("h2", "Failed trials, by step"),
        element("p", "A trial that fails in a step goes no further and scores 0.", class_="lead"),
        scrolling(table, "Failed trials"),
        _reasons(evaluation),
        id="failures",
    )


def _heading(words: str, colour: str) -> Html:
    return joined([element("i", class_=f"key {colour}"), words])


def _row(team: TeamResult, model: ModelResult) -> Html:
    lost = Counter(failed_step(trial.failure).stage for trial in model.trials if trial.failure)
    whole = len(model.trials)
    made = whole - lost.total()
    parts = [Part(made, "made"), *(Part(lost[step.stage], f"lost-{step.stage}") for step in FAILED_STEPS)]
    cells = [
        element("td", str(lost[step.stage]), class_=f"number {shade(lost[step.stage], whole)}") for step in FAILED_STEPS
    ]
    return element(
        "tr",
        element("th", element("a", team.row.team, href=f"#{model_id(team, model)}"), scope="row"),
        element("td", model.model),
        element("td", stacked_bar(parts), class_="fate"),
        element("td", str(made), class_="number"),
        *cells,
    )


def _reasons(evaluation: Evaluation) -> Html:
    """List the commonest reasons, without the place that follows them in brackets."""
    found = Counter(
        (failed_step(trial.failure).words, reason_of(trial.failure).split(" (")[0])
        for team in evaluation.teams
        for trial in team.trials
        if trial.failure
    )
    if not found:
        return NOTHING
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MOST_REASONS]
    items = [
        element("li", element("b", str(number)), element("span", step, class_="step"), element("span", reason))
        for (step, reason), number in ordered
    ]
    return element("div", element("h3", "Commonest reasons"), element("ul", *items, class_="reasons"))
