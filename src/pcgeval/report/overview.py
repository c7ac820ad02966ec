"""The top of the page: which round this is, who won and why, the ranking, and how to read it."""

import re
from decimal import Decimal

from pcgeval.report.anchors import grade_id, team_id
from pcgeval.report.charts import interval_bar
from pcgeval.report.grade_changes import change_words
from pcgeval.report.html import NOTHING, Html, element, joined, shortened
from pcgeval.report.reading import ModelCell
from pcgeval.report.results import Evaluation, TeamResult
from pcgeval.report.words import count, figure, score_figure
from pcgeval.rubric.grade_files import HEURISTIC
from pcgeval.scoring.decimals import rounded

LONGEST_TITLE = 100  # characters
_LONG_DECIMAL = re.compile(r"[0-9]+\.[0-9]{7,}")


def head(evaluation: Evaluation) -> Html:
    """Return the title, the sentence about the winners and the size of the round."""
    competition = evaluation.params.competition
    trials = [trial for team in evaluation.scored_teams for trial in team.trials]
    failed = sum(trial.failure is not None for trial in trials)
    facts = [
        (str(len(evaluation.teams)), "teams"),
        (str(len(evaluation.params.models)), "models"),
        (str(len(competition.characters)), "letters"),
        (str(competition.trials), "trials of each letter"),
        (f"{len(trials) - failed} of {len(trials)}", "trials gave a level"),
    ]
    return element(
        "header",
        element("p", f"Edition {competition.edition} · {competition.round}", class_="eyebrow"),
        element("h1", shortened(competition.name, LONGEST_TITLE)),
        element("p", _rounded(evaluation.ranking.reason), class_="verdict"),
        element("ul", *(element("li", element("b", number), f" {what}") for number, what in facts), class_="facts"),
    )


def _rounded(sentence: str) -> str:
    """Round the exact totals in a sentence; they stand in full in the ranking's tooltips."""
    return _LONG_DECIMAL.sub(lambda number: rounded(number[0]), sentence)


def ranking(evaluation: Evaluation) -> Html:
    """Return the table of the teams, the best first."""
    most = max((_upper_end(team) for team in evaluation.scored_teams), default=0.0)
    columns = ["Rank", "Team", _normalised_heading(evaluation), "Total", *evaluation.params.models]
    columns += ["Failed trials", "Rubric grade"]
    body = [_row(team, evaluation, most) for team in evaluation.teams]
    table = element(
        "table",
        element("thead", element("tr", *(element("th", each, scope="col") for each in columns))),
        element("tbody", *body),
        class_="ranking",
    )
    return element(
        "section", element("h2", "Ranking"), scrolling(table, "Ranking"), _how_to_read(evaluation), id="ranking"
    )


def scrolling(table: Html, label: str) -> Html:
    """Return a wide table in a frame that scrolls sideways, also by keyboard."""
    return element("div", table, class_="wide", tabindex=0, role="region", aria_label=label)


def badges(team: TeamResult) -> Html:
    """Return what is special about a team: winner, baseline, disqualified, flagged, run without a sandbox."""
    special = ["winner"] if team.row.winner else []
    special += [] if team.row.status == "ranked" else [team.row.status]
    flagged = sum(bool(trial.flag_kinds) for trial in team.trials)
    warnings = [f"{count(flagged, 'trial')} flagged"] if flagged else []
    warnings += [] if all(trial.contained for trial in team.trials) else ["no sandbox"]
    return joined(
        [
            *(element("span", each, class_=f"badge {each}") for each in special),
            *(element("a", each, href="#flags", class_="badge warning") for each in warnings),
        ]
    )


def title(team: TeamResult) -> str:
    """Return the title of a team's submission."""
    return shortened(team.submission.title, LONGEST_TITLE)


def _normalised_heading(evaluation: Evaluation) -> str:
    intervals = evaluation.ranking.intervals
    return f"Normalised, with {intervals.level:.0%} interval" if intervals else "Normalised"


def _upper_end(team: TeamResult) -> float:
    return max(float(team.row.normalised or 0), team.row.interval[1] if team.row.interval else 0)


def _row(team: TeamResult, evaluation: Evaluation, most: float) -> Html:
    row = team.row
    reason = element("small", shortened(row.disqualified, 300)) if row.disqualified else NOTHING
    name = element("a", title(team), href=f"#{team_id(team)}")
    return element(
        "tr",
        element("td", "–" if row.rank is None else str(row.rank), class_="rank"),
        element("th", name, badges(team), element("small", row.team), reason, scope="row"),
        _normalised(team, most),
        element("td", "–" if row.total is None else _exact(row.total), class_="number"),
        *(_model_cell(row.models.get(model)) for model in evaluation.params.models),
        _failed_trials(team),
        _grade(team),
        class_=row.status,
    )


def _normalised(team: TeamResult, most: float) -> Html:
    row = team.row
    if row.normalised is None:
        return element("td", "–", class_="number")
    interval = f"{row.interval[0]:.1f} – {row.interval[1]:.1f}" if row.interval else ""
    figures = element("span", element("b", figure(row.normalised, 2)), element("small", interval), class_="pair")
    return element("td", figures, interval_bar(row.normalised, row.interval, most), class_="number normalised")


def _model_cell(cell: ModelCell | None) -> Html:
    if cell is None:
        return element("td", "–", class_="number")
    return element("td", _exact(cell.score), element("small", f"{figure(cell.normalised, 1)} %"), class_="number")


def _failed_trials(team: TeamResult) -> Html:
    failed = sum(trial.failure is not None for trial in team.trials)
    return element("td", str(failed), element("small", f"of {len(team.trials)}"), class_="number")


def _grade(team: TeamResult) -> Html:
    """Show the grade and how it moved; a guess in its place is called one and shows no figure."""
    grade = team.grade
    if grade.judge_type == HEURISTIC:
        link = element("a", "no grade, a guess", href=f"#{grade_id(team)}", class_="badge warning")
        return element("td", link, class_="number grade-cell")
    link = element("a", "none" if grade.score is None else figure(grade.score, 2), href=f"#{grade_id(team)}")
    bounds = grade.score_bounds
    spread = f"{figure(bounds.low, 2)} – {figure(bounds.high, 2)}" if grade.num_invalid_leaf_nodes else ""
    lines = [spread, change_words(team.grade_change) if team.grade_change else ""]
    return element("td", link, *(element("small", line) for line in lines if line), class_="number grade-cell")


def _exact(value: Decimal) -> Html:
    """Show a score rounded, and with more digits when it is pointed at."""
    return element("span", score_figure(value), title=f"{value:.20f}")


def _how_to_read(evaluation: Evaluation) -> Html:
    params = evaluation.params
    return element(
        "ol",
        _formula(
            "trial score = weight × stability × similarity",
            f"Stability is the share of blocks that stay in place for {params.physics.seconds:g} seconds of physics; "
            "similarity is the probability that the classifier gives the letter asked for; a failed trial scores 0.",
        ),
        _formula(
            "prompt score = mean over letters of diversity × mean trial score",
            "Diversity is how much the trials of one letter differ; a letter's weight is the product, over the three "
            f"measures, of 1 − mean of all teams, at least 1/{len(params.competition.characters)} each, so that hard "
            "letters count more.",
        ),
        _formula(
            "normalised score = 100 × total ÷ sum of all totals",
            f"A team's total is the sum of its prompt scores over {count(len(params.models), 'model')}."
            f"{_bar_to_beat(evaluation)}{_intervals_drawn(evaluation)}",
        ),
        class_="formulas",
        aria_label="How to read the scores",
    )


def _formula(formula: str, words: str) -> Html:
    return element("li", element("code", formula), element("p", words))


def _bar_to_beat(evaluation: Evaluation) -> str:
    baseline = evaluation.ranking.baseline
    return f" The winner must be above the baseline {baseline}." if baseline else ""


def _intervals_drawn(evaluation: Evaluation) -> str:
    drawn = evaluation.ranking.intervals
    if drawn is None:
        return ""
    return f" Intervals come from {drawn.resamples} bootstrap resamples of the trials; they decide nothing."
