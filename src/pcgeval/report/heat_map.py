"""The heat map: every letter of every team and model at a glance, and how much each letter weighs."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from pcgeval.report.anchors import letter_id, model_id
from pcgeval.report.charts import SHADES, column, shade
from pcgeval.report.html import Html, element
from pcgeval.report.overview import scrolling
from pcgeval.report.reading import LetterRow, LetterWeight
from pcgeval.report.results import Evaluation, LetterResult, ModelResult, TeamResult
from pcgeval.report.words import figure, score_figure


@dataclass(frozen=True)
class _Measure:
    """One of the quantities that the heat map can show, and what goes into a letter's weight because of it."""

    key: str
    words: str
    value: Callable[[LetterRow], Decimal]
    weight: Callable[[LetterWeight], Decimal]
    weight_words: str
    legend: str


_MEASURES = (
    _Measure(
        "score",
        "Letter score",
        lambda row: row.score,
        lambda each: each.weight,
        "letter weight",
        "Letter score{times}. Bars: the weight of each letter",
    ),
    _Measure(
        "stability",
        "Stability",
        lambda row: row.stability,
        lambda each: each.stability,
        "weight factor",
        "Mean stability of the trials. Bars: its factor in the weight of each letter",
    ),
    _Measure(
        "similarity",
        "Similarity",
        lambda row: row.similarity,
        lambda each: each.similarity,
        "weight factor",
        "Mean similarity of the trials. Bars: its factor in the weight of each letter",
    ),
    _Measure(
        "diversity",
        "Diversity",
        lambda row: row.diversity,
        lambda each: each.diversity,
        "weight factor",
        "Diversity of the trials. Bars: its factor in the weight of each letter",
    ),
)


def heat_map(evaluation: Evaluation) -> Html:
    """Return the heat maps of all measures, of which radio buttons show one."""
    buttons = [part for measure in _MEASURES for part in _button(measure)]
    tables = [_table(evaluation, measure) for measure in _MEASURES]
    return element(
        "section",
        element("h2", "Letter by letter"),
        element("fieldset", element("legend", "Colour the letters by"), *buttons, *tables, class_="measures"),
        id="letters",
    )


def _button(measure: _Measure) -> tuple[Html, Html]:
    checked = {"checked": "checked"} if measure is _MEASURES[0] else {}
    name = f"by-{measure.key}"
    button = element("input", type_="radio", name="measure", id=name, **checked)
    return button, element("label", measure.words, for_=name)


@dataclass(frozen=True)
class _Scale:
    """What is shown, and how, in all models alike.

    `darkest` and `highest` are the values with the darkest colour and the highest bar; cells print values `times` so
    much.
    """

    measure: _Measure
    darkest: Decimal
    highest: Decimal
    times: int

    def figure(self, value: Decimal) -> str:
        return figure(value * self.times, 2)


def _table(evaluation: Evaluation, measure: _Measure) -> Html:
    scale = _scale(evaluation, measure)
    letters = evaluation.params.competition.characters
    heads = [element("th", each, scope="col") for each in ("model, team", *letters, "mean")]
    bodies = [_model_rows(evaluation, model, scale) for model in evaluation.params.models]
    table = element("table", element("thead", element("tr", *heads)), *bodies, class_="heat")
    return element("div", _legend(scale), scrolling(table, measure.words), class_=f"measure measure-{measure.key}")


def _scale(evaluation: Evaluation, measure: _Measure) -> _Scale:
    models = [model for team in evaluation.scored_teams for model in team.models]
    values = [value for model in models for value in _values(model, measure)]
    weights = [weight for model in models for weight in _weights(model, measure)]
    darkest = max(values, default=Decimal(0)) if measure.key == "score" else Decimal(1)
    times = (
        10 ** max(0, -darkest.adjusted()) if darkest else 1
    )  # so that the largest value has a digit before its point
    return _Scale(measure, darkest, max(weights, default=Decimal(1)), times)


def _legend(scale: _Scale) -> Html:
    legend = scale.measure.legend.format(times=f" times {scale.times:,}" if scale.times > 1 else "")
    ramp = [element("i", class_=f"h{step}") for step in range(1, SHADES + 1)]
    return element(
        "p",
        element("span", element("i", class_="h0"), " 0", class_="ramp"),
        element("span", *ramp, f" to {scale.figure(scale.darkest)}", class_="ramp"),
        f"{legend}, high where all teams together did badly.",
        class_="legend",
    )


def _model_rows(evaluation: Evaluation, model: str, scale: _Scale) -> Html:
    results = [(team, each) for team in evaluation.scored_teams for each in team.models if each.model == model]
    weights = _weights(results[0][1], scale.measure) if results else []
    bars = [element("td", column(weight, scale.highest), element("span", figure(weight, 2))) for weight in weights]
    head = element("th", element("b", model), element("small", scale.measure.weight_words), scope="row")
    rows = [_team_row(team, each, scale) for team, each in results]
    return element("tbody", element("tr", head, *bars, element("td"), class_="weights"), *rows)


def _team_row(team: TeamResult, model: ModelResult, scale: _Scale) -> Html:
    values = _values(model, scale.measure)
    mean = scale.figure(sum(values, Decimal(0)) / len(values))
    cells = [_cell(team, model, letter, value, scale) for letter, value in zip(model.letters, values, strict=True)]
    head = element("th", element("a", team.row.team, href=f"#{model_id(team, model)}"), scope="row")
    return element("tr", head, *cells, element("td", mean, class_="mean"))


def _cell(team: TeamResult, model: ModelResult, letter: LetterResult, value: Decimal, scale: _Scale) -> Html:
    # by keyboard the row's head leads to the same place: one stop a row instead of one a letter
    link = element("a", scale.figure(value), href=f"#{letter_id(team, model, letter.letter)}", tabindex=-1)
    title = f"{letter.letter}, {team.row.team}: {score_figure(value)}"
    return element("td", link, class_=shade(value, scale.darkest), title=title)


def _values(model: ModelResult, measure: _Measure) -> list[Decimal]:
    return [measure.value(letter.scores) for letter in model.letters if letter.scores is not None]


def _weights(model: ModelResult, measure: _Measure) -> list[Decimal]:
    return [measure.weight(letter.weight) for letter in model.letters]
