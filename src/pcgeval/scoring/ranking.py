"""From scores to places: who ranks where, who wins, and why.

Rules (ChatGPT4PCG and LLMs4PCG): the highest normalised total wins if it is above the zero-shot baseline's; of equal
totals the shorter prompt is ahead; what is still equal shares a place (1, 2, 2, 4) and, at the top, the win. Baselines
are scored like all teams and are listed without a rank; disqualified teams are named and not scored.

The ranking goes into `ranking.csv`, `ranking.json` and `metrics.json`, for tables, programs and `dvc metrics show`.
Exact numbers are texts in JSON, as in the official files; the metrics are rounded floats.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal

from pcgeval.core.files import write_json, write_text
from pcgeval.core.layout import METRICS, RANKING_CSV, RANKING_JSON
from pcgeval.core.stage_files import (
    RankedTeam,
    RankingFile,
    RankingIntervals,
    RankingRules,
    ScoreInterval,
    TeamModelScore,
    plain,
)
from pcgeval.scoring.decimals import ZERO, rounded
from pcgeval.scoring.formulas import RULES_VERSION, CompetitionScores, TeamTotal
from pcgeval.scoring.inputs import ScoringError, byte_order

_METRIC_DIGITS = 4
Role = Literal["participant", "baseline"]


@dataclass(frozen=True)
class ModelUsage:
    """What the records of a team's trials with a model tell: how many have flags, and who named the blocks first.

    Attributes:
        flagged_trials: How many trials an inspector should look at.
        blocks: The blocks of all responses.
        supplied: Those of them that the submission told the model.
    """

    flagged_trials: int
    blocks: int
    supplied: int


@dataclass(frozen=True)
class Entrant:
    """A team as far as the ranking needs it.

    Attributes:
        team: Its name in the results.
        prompt_length: Characters of its prompt; None where it is not known, which breaks no tie.
        role: Baselines are scored but not ranked.
        disqualified: The reason, or None.
        usage: By model, what the records of its trials tell; empty where there are none.
    """

    team: str
    prompt_length: int | None = None
    role: Role = "participant"
    disqualified: str | None = None
    usage: Mapping[str, ModelUsage] = field(default_factory=dict)

    @property
    def status(self) -> Literal["disqualified", "baseline", "ranked"]:
        """Whether it has a place in the ranking, or why not."""
        if self.disqualified is not None:
            return "disqualified"
        return "baseline" if self.role == "baseline" else "ranked"


@dataclass(frozen=True)
class Ranking:
    """The table, the best total first and disqualified teams last; `reason` is one sentence about the winners."""

    rows: tuple[RankedTeam, ...]
    winners: tuple[str, ...]
    reason: str
    baseline: str | None


def rank(
    scores: CompetitionScores, submissions: Iterable[Entrant], intervals: Mapping[str, ScoreInterval] | None = None
) -> Ranking:
    """Rank the scored teams.

    Args:
        scores: All models; the baseline to beat is `scores.rules.baseline`.
        submissions: Every team once, the disqualified too; those must not be in the scores.
        intervals: Uncertainty of the normalised totals by team, from `bootstrap`; shown, never decisive.

    Raises:
        ScoringError: Scores and submissions are not of the same teams, or the baseline is not among the scored.
    """
    teams = list(submissions)
    entrants = {team.team: team for team in teams}
    if len(entrants) < len(teams):
        raise ScoringError("a team is among the submissions twice. Give every team once.")
    totals = {total.team: total for total in scores.totals}
    _check(entrants, totals, scores.rules.baseline)
    rows = [_row(team, scores, (intervals or {}).get(team.team)) for team in teams]
    ranked = [row for row in rows if row.status == "ranked"]
    ranks = {row.team: _rank_among(ranked, row) for row in ranked}
    bar = totals[scores.rules.baseline] if scores.rules.baseline else None
    winners, reason = _winners(sorted(ranked, key=lambda row: (ranks[row.team], byte_order(row.team))), ranks, bar)
    rows = [row.model_copy(update={"rank": ranks.get(row.team), "winner": row.team in winners}) for row in rows]
    return Ranking(tuple(sorted(rows, key=_table_order)), winners, reason, scores.rules.baseline)


def _check(entrants: dict[str, Entrant], totals: dict[str, TeamTotal], baseline: str | None) -> None:
    for team in totals:
        if team not in entrants:
            raise ScoringError(f"team {team!r} has scores but no submission. Add its submission, or score without it.")
        if entrants[team].disqualified is not None:
            raise ScoringError(
                f"team {team!r} is disqualified but was scored. Score without it: it changes the weights."
            )
    for team, entrant in entrants.items():
        if team not in totals and entrant.disqualified is None:
            raise ScoringError(f"team {team!r} has a submission but no scores. Run its trials, or take it out.")
    if baseline is not None and baseline not in totals:
        raise ScoringError(f"the baseline {baseline!r} is not among the scored teams. Correct scoring.baseline.")
    if baseline is not None and entrants[baseline].role != "baseline":
        raise ScoringError(
            f"the baseline {baseline!r} takes part as a participant. Give its submission role: baseline."
        )


def _rank_among(ranked: list[RankedTeam], row: RankedTeam) -> int:
    """Rank by total, equals by prompt length where all of them are known; the same in both shares a rank."""
    higher = sum((each.total or 0) > (row.total or 0) for each in ranked)
    lengths = [each.prompt_length for each in ranked if each.total == row.total]
    known = [length for length in lengths if length is not None]
    shorter = sum(length < (row.prompt_length or 0) for length in known) if len(known) == len(lengths) else 0
    return 1 + higher + shorter


def _winners(ranked: list[RankedTeam], ranks: Mapping[str, int], bar: TeamTotal | None) -> tuple[tuple[str, ...], str]:
    """Return the winners among the teams in the order of their ranks, and a sentence about them."""
    first = [each for each in ranked if ranks[each.team] == 1]
    if not first:
        return (), "There is no winner: nobody takes part beside baselines and disqualified teams."
    names, best = tuple(each.team for each in first), first[0].total or ZERO
    if bar is not None and best <= bar.total:
        return (), (
            f"There is no winner: no team beats the baseline {bar.team} with its total of {rounded(bar.total)}; "
            f"the best, {' and '.join(names)}, has {rounded(best)}."
        )
    above = f", above the baseline {bar.team}" if bar is not None else "; no baseline had to be beaten"
    beaten = [each.team for each in ranked if ranks[each.team] > 1 and each.total == best]
    if len(names) > 1:
        return names, f"{' and '.join(names)} win together: equal totals, and no prompt known to be shorter{above}."
    if beaten:
        return names, f"{names[0]} wins: its total equals that of {', '.join(beaten)}, its prompt is shorter{above}."
    return names, f"{names[0]} wins: it has the highest total{above}."


def _row(entrant: Entrant, scores: CompetitionScores, interval: ScoreInterval | None) -> RankedTeam:
    """Return a team's line, still without its rank."""
    total = next((each for each in scores.totals if each.team == entrant.team), None)
    return RankedTeam(
        team=entrant.team,
        status=entrant.status,
        rank=None,
        winner=False,
        total=total.total if total else None,
        normalised=total.normalised if total else None,
        models={
            model.model: TeamModelScore(
                score=prompt.score,
                normalised=prompt.normalised,
                failed_trials=prompt.failed_trials,
                **(asdict(entrant.usage[model.model]) if model.model in entrant.usage else {}),
            )
            for model in scores.models
            for prompt in model.prompts
            if prompt.team == entrant.team
        },
        prompt_length=entrant.prompt_length,
        disqualified=entrant.disqualified,
        interval=interval,
    )


def _table_order(row: RankedTeam) -> tuple[bool, Decimal, int, bytes]:
    total = ZERO if row.total is None else row.total.copy_negate()
    return row.total is None, total, row.rank or 0, byte_order(row.team)


def write_ranking(folder: Path, ranking: Ranking, scores: CompetitionScores, file: RankingFile) -> None:
    """Write the three files of the ranking into a folder, under the names that `results/` gives them."""
    write_text(folder / RANKING_CSV.name, ranking_csv(ranking, scores))
    file.write(folder / RANKING_JSON.name)
    write_json(folder / METRICS.name, metrics(ranking))


def ranking_csv(ranking: Ranking, scores: CompetitionScores) -> str:
    """Return the table, one team a line: totals and normalised scores exact, empty where there is none."""
    models = [model.model for model in scores.models]
    columns = ["rank", "team", "status", "winner", "normalised", "total"]
    columns += [f"{figure} {model}" for figure in ("score", "failed trials", "flagged trials") for model in models]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in ranking.rows:  # the writer leaves None empty
        fields = [row.rank, row.team, row.status, "yes" if row.winner else "no"]
        fields += [None if each is None else plain(each) for each in (row.normalised, row.total)]
        fields += [plain(model.score) for model in row.models.values()]
        fields += [model.failed_trials for model in row.models.values()]
        fields += [model.flagged_trials for model in row.models.values()]
        writer.writerow(fields + [None] * (len(columns) - len(fields)))
    return text.getvalue()


def ranking_file(ranking: Ranking, scores: CompetitionScores, intervals: RankingIntervals | None = None) -> RankingFile:
    """Return all that is known of the ranking, with the rules and tools that it came from."""
    return RankingFile(
        winners=ranking.winners,
        reason=ranking.reason,
        baseline=ranking.baseline,
        rules=RankingRules(
            version=RULES_VERSION,
            letters=scores.rules.letters,
            trials=scores.rules.trials,
            official_quirks=scores.rules.official_quirks,
        ),
        engine=scores.provenance.engine,
        classifier=scores.provenance.classifier,
        packages={
            name: tuple(version for _, version in found)
            for name, found in groupby(sorted(scores.provenance.packages), key=itemgetter(0))
        },
        intervals=intervals,
        teams=ranking.rows,
    )


def metrics(ranking: Ranking) -> dict[str, float | int]:
    """Return flat figures for `dvc metrics show`: each team's normalised score, failed and flagged trials."""
    found: dict[str, float | int] = {}
    for row in ranking.rows:
        failed = sum(model.failed_trials for model in row.models.values())
        if row.normalised is not None:
            found[f"normalised.{row.team}"] = round(float(row.normalised), _METRIC_DIGITS)
            found[f"failed_trials.{row.team}"] = failed
            flagged = [model.flagged_trials for model in row.models.values() if model.flagged_trials is not None]
            if flagged:
                found[f"flagged_trials.{row.team}"] = sum(flagged)
        if row.winner and row.total is not None:
            found["winner_total"] = float(f"{row.total:.6g}")
        found["failed_trials_in_all"] = found.get("failed_trials_in_all", 0) + failed
    found["winners"] = len(ranking.winners)
    return found
