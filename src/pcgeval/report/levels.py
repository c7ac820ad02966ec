"""Every level: its picture, what was measured of it, and why it scored nothing where it did."""

from decimal import Decimal

from pcgeval.report.anchors import flag_id, letter_id, model_id, team_id, trial_id
from pcgeval.report.charts import level_picture
from pcgeval.report.html import NOTHING, Html, element, shortened
from pcgeval.report.overview import badges, title
from pcgeval.report.results import Evaluation, LetterResult, ModelResult, TeamResult, TrialResult
from pcgeval.report.words import (
    count,
    failed_step,
    figure,
    flag_words,
    reason_of,
    score_figure,
    zero_letter,
    zero_trial,
)
from pcgeval.report.work import work


def levels(evaluation: Evaluation) -> Html:
    """Return the levels of all teams: team by team, model by model, letter by letter."""
    key = element(
        "p",
        element("span", class_="swatch stayed"),
        "block that stayed in place ",
        element("span", class_="swatch moved"),
        "block that moved; blocks that broke are not drawn. The classifier sees the same picture in plain black on "
        "white. Under each picture: trial and trial score, what was measured, the letter that the classifier read; of "
        "a program, how often it called the model and the tokens that took.",
        class_="lead",
    )
    return element(
        "section",
        element("h2", "Every level"),
        key,
        *(_team(team) for team in evaluation.teams),
        id="levels",
    )


def _team(team: TeamResult) -> Html:
    return element(
        "article",
        element("h3", title(team), badges(team), element("small", team.row.team)),
        work(team),
        *(_model(team, model) for model in team.models),
        id=team_id(team),
    )


def _model(team: TeamResult, model: ModelResult) -> Html:
    failed = sum(trial.failure is not None for trial in model.trials)
    cell = team.row.models.get(model.model)
    score = f"prompt score {score_figure(cell.score)}, " if cell else ""
    summary = element(
        "summary",
        element("h4", model.model),
        element("span", f"{score}{failed} of {count(len(model.trials), 'trial')} failed"),
    )
    groups = [_letter(team, model, letter) for letter in model.letters]
    return element(
        "details",
        summary,
        element("div", *groups, class_="letters"),
        id=model_id(team, model),
        class_="model",
        open_="open",
    )


def _letter(team: TeamResult, model: ModelResult, letter: LetterResult) -> Html:
    return element(
        "div",
        element("h5", letter.letter, element("span", _letter_figures(letter))),
        element("div", *(_trial(team, model, trial) for trial in letter.trials), class_="trials"),
        _note(zero_letter(letter)),
        _replies(letter),
        class_="letter",
        id=letter_id(team, model, letter.letter),
    )


def _letter_figures(letter: LetterResult) -> str:
    if letter.scores is None:
        return "not scored"
    score, diversity = score_figure(letter.scores.score), figure(letter.scores.diversity)
    return f"score {score} · diversity {diversity} · weight {figure(letter.weight.weight)}"


def _note(words: str | None) -> Html:
    return NOTHING if words is None else element("p", words, class_="zero")


def _trial(team: TeamResult, model: ModelResult, trial: TrialResult) -> Html:
    score = NOTHING if trial.score is None else element("b", score_figure(trial.score), class_="score")
    name = element("div", element("span", f"{trial.trial.letter} {trial.trial.number}"), score, class_="name")
    cost = _cost(trial) if team.program else []
    if trial.failure is not None:
        words = element("p", element("b", failed_step(trial.failure).words), reason_of(trial.failure))
        frame = element("div", words, class_="frame failed")
        figures = [element("dl", *cost)] if cost else []
    else:
        frame = element("div", level_picture(trial.blocks or ()), class_="frame")
        figures = [element("dl", *_measured(trial), *cost), _note(zero_trial(trial))]
    place = {"id": trial_id(team, model, trial.trial)} if trial.flag_kinds else {}
    return element("figure", frame, element("figcaption", name, _flags(team, model, trial), *figures), **place)


def _flags(team: TeamResult, model: ModelResult, trial: TrialResult) -> Html:
    links = [element("a", flag_words(kind), href=f"#{flag_id(team, model, kind)}") for kind in trial.flag_kinds]
    return element("p", *links, class_="flags") if links else NOTHING


def _cost(trial: TrialResult) -> list[Html]:
    """Return what a program's trial took; a prompt's is one call."""
    if trial.conduct is None:
        return []
    return [_pair("calls", str(trial.conduct.calls)), _pair("tokens", f"{trial.conduct.tokens:,}")]


def _measured(trial: TrialResult) -> list[Html]:
    pairs = [_pair("stability", _two(trial.stability)), _pair("similarity", _two(trial.similarity))]
    if trial.seen is not None:
        right = "right" if trial.seen.label == trial.trial.letter else ""
        pairs.append(_pair("read as", f"{shortened(trial.seen.label, 12)} {figure(trial.seen.probability, 2)}", right))
    for name, number in (("moved", _moved(trial)), ("broke", _broken(trial))):
        if number:
            pairs.append(_pair(name, f"{number} of {len(trial.blocks or ())}"))
    return pairs


def _moved(trial: TrialResult) -> int:
    return sum(block.moved and not block.dead for block in trial.blocks or ())


def _broken(trial: TrialResult) -> int:
    return sum(block.dead for block in trial.blocks or ())


def _pair(name: str, value: str, class_: str = "") -> Html:
    attributes = {"class_": class_} if class_ else {}
    return element("div", element("dt", name), element("dd", value), **attributes)


def _two(value: float | Decimal | None) -> str:
    return "–" if value is None else figure(value, 2)


def _replies(letter: LetterResult) -> Html:
    replies = [
        element("pre", element("b", f"{letter.letter} {trial.trial.number}"), f"\n{trial.reply or '(nothing)'}")
        for trial in letter.trials
    ]
    return element("details", element("summary", "replies"), *replies, class_="replies")
