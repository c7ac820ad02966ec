"""From scores to ranks: the order of the teams, the winner, and the reason.

Rules (ChatGPT4PCG and LLMs4PCG): the highest share of all points wins if it is above the zero-shot baseline's; of equal
totals the shorter prompt is ahead; teams that are still equal share a rank (1, 2, 2, 4) and, at the top, the win.
Baselines are scored like all teams and listed without a rank; disqualified teams are listed and not scored, with what
they would have had beside the reason.

`ranking.csv` is for people, `ranking.json` for programs and `metrics/<team>.json` for `dvc metrics show`. Exact numbers
are texts in JSON, as in the official files; the metrics are rounded floats.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.files import write_json, write_text
from pcgeval.core.text import plain, rounded
from pcgeval.formats.layout import RANKING_CSV, RANKING_JSON
from pcgeval.formats.results import (
    RankedTeam,
    RankingFile,
    RankingIntervals,
    RankingRules,
    ScoreInterval,
    TeamModelScore,
)
from pcgeval.scoring.formulas import RULES_VERSION, ZERO, CompetitionScores, ModelScores, TeamTotal, score_competition
from pcgeval.scoring.inputs import CompetitionResults, ScoringError, ScoringRules, byte_order, known_sum

LEVEL = 0.90
_DIGITS = 4  # of a percentage: far above what the order of float sums can change
_DRAWS_AT_ONCE = 2_000_000  # bounds the memory at some 100 MB
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Entrant:
    """A team of the ranking."""

    team: str
    prompt_length: int | None = None  # characters; an unknown length breaks no tie
    role: Literal["participant", "baseline"] = "participant"
    disqualified: str | None = None  # the reason


@dataclass(frozen=True)
class Ranking:
    """The table, the best total first and disqualified teams last."""

    rows: tuple[RankedTeam, ...]
    winners: tuple[str, ...]
    reason: str  # one sentence about the winners
    baseline: str | None


def rank(
    scores: CompetitionScores, submissions: Iterable[Entrant], intervals: Mapping[str, ScoreInterval] | None = None
) -> Ranking:
    """Rank the scored teams.

    Args:
        scores: All models; the baseline to beat is `scores.rules.baseline`.
        submissions: Every team once; disqualified teams must not be in the scores.
        intervals: Intervals of the shares of all points by team, from `bootstrap`; they decide nothing.

    Raises:
        ScoringError: Scores and submissions have different teams, or the baseline has no scores.
    """
    entrants = list(submissions)
    totals = {total.team: total for total in scores.totals}
    baseline = scores.rules.baseline
    _check(entrants, totals, baseline)
    rows = [_row(entrant, scores, totals, (intervals or {}).get(entrant.team)) for entrant in entrants]
    ranked = [row for row in rows if row.status == "ranked"]
    ranks = {row.team: _rank_among(ranked, row) for row in ranked}
    ranked.sort(key=lambda row: (ranks[row.team], byte_order(row.team)))
    winners, reason = _winners(ranked, ranks, totals[baseline] if baseline else None)
    rows = [row.model_copy(update={"rank": ranks.get(row.team), "winner": row.team in winners}) for row in rows]
    return Ranking(tuple(sorted(rows, key=_table_order)), winners, reason, baseline)


def with_disqualified(
    ranking: Ranking, results: CompetitionResults, rules: ScoringRules, submissions: Iterable[Entrant]
) -> Ranking:
    """Add to each disqualified team's line what it would have had.

    The same rules score and rank the results of the ranked teams and baselines with those of this one team. Its levels
    then count in the weights and its total in the sum of all, so the others would have other shares than they have.

    Args:
        ranking: The ranking of the teams that are not disqualified.
        results: Those of all teams; a disqualified team that lacks some, or with those of another engine or classifier,
            has no such line.
        rules: The rules of the ranking.
        submissions: Every team once.
    """
    entrants = list(submissions)
    entering = [entrant for entrant in entrants if entrant.disqualified is None]
    lines: dict[str, RankedTeam] = {}
    for entrant in entrants:
        if entrant.disqualified is not None:
            added = [*entering, replace(entrant, disqualified=None)]
            with suppress(ScoringError):
                scores = score_competition(results.of([team.team for team in added]), rules)
                lines |= {row.team: row for row in rank(scores, added).rows if row.team == entrant.team}
    rows = (row.model_copy(update={"would_have": lines.get(row.team)}) for row in ranking.rows)
    return replace(ranking, rows=tuple(rows))


def _check(entrants: list[Entrant], totals: Mapping[str, TeamTotal], baseline: str | None) -> None:
    entering = sorted(entrant.team for entrant in entrants if entrant.disqualified is None)
    if entering != sorted(totals):
        one_side = sorted({*entering} ^ totals.keys()) or entering
        raise ScoringError(
            f"team {one_side[0]!r}: the scores must have every submission once, without disqualified teams, which "
            "change the weights. Score it, or leave it out."
        )
    scored_baselines = [entrant.team for entrant in entrants if entrant.role == "baseline" and entrant.team in totals]
    if baseline is not None and baseline not in scored_baselines:
        raise ScoringError(
            f"the baseline {baseline!r} is not among the scored teams, or is a participant. Correct scoring.baseline, "
            "or give the team `role: baseline`."
        )


def _row(
    entrant: Entrant, scores: CompetitionScores, totals: Mapping[str, TeamTotal], interval: ScoreInterval | None
) -> RankedTeam:
    """Return a team's line without its rank."""
    total = totals.get(entrant.team)
    prompts = {
        model.model: prompt for model in scores.models for prompt in model.prompts if prompt.team == entrant.team
    }
    scored: Literal["ranked", "baseline"] = "baseline" if entrant.role == "baseline" else "ranked"
    return RankedTeam(
        team=entrant.team,
        status=scored if entrant.disqualified is None else "disqualified",
        rank=None,
        winner=False,
        total=total.total if total else None,
        normalised=total.normalised if total else None,
        models={
            model: TeamModelScore(
                score=prompt.score,
                normalised=prompt.normalised,
                failed_trials=prompt.failed_trials,
                trials=len(prompt.trials),
                recognised=prompt.recognised,
            )
            for model, prompt in prompts.items()
        },
        trials=sum(len(prompt.trials) for prompt in prompts.values()) if prompts else None,
        recognised=known_sum(prompt.recognised for prompt in prompts.values()) if prompts else None,
        prompt_length=entrant.prompt_length,
        disqualified=entrant.disqualified,
        interval=interval,
    )


def _rank_among(ranked: list[RankedTeam], row: RankedTeam) -> int:
    """Rank by total, and equal totals by prompt length if all of these are known."""
    higher = sum((other.total or 0) > (row.total or 0) for other in ranked)
    lengths = [other.prompt_length for other in ranked if other.total == row.total]
    known = [length for length in lengths if length is not None]
    shorter = sum(length < (row.prompt_length or 0) for length in known) if len(known) == len(lengths) else 0
    return 1 + higher + shorter


def _winners(
    ranked: list[RankedTeam], ranks: Mapping[str, int], baseline: TeamTotal | None
) -> tuple[tuple[str, ...], str]:
    """Return the winners and a sentence about them; the teams are in the order of their ranks."""
    first = [row for row in ranked if ranks[row.team] == 1]
    if not first:
        return (), "There is no winner: all teams are baselines or disqualified."
    names, best = tuple(row.team for row in first), first[0].total or ZERO
    if baseline is not None and best <= baseline.total:
        return (), (
            f"There is no winner: no team beats the baseline {baseline.team} with its total of "
            f"{rounded(baseline.total)}; the best, {' and '.join(names)}, has {rounded(best)}."
        )
    above = "; no baseline had to be beaten" if baseline is None else f", above the baseline {baseline.team}"
    beaten = [row.team for row in ranked if ranks[row.team] > 1 and row.total == best]
    if len(names) > 1:
        return names, f"{' and '.join(names)} win together: equal totals, and no prompt known to be shorter{above}."
    if beaten:
        return names, f"{names[0]} wins: its total equals that of {', '.join(beaten)}, its prompt is shorter{above}."
    return names, f"{names[0]} wins: it has the highest total{above}."


def _table_order(row: RankedTeam) -> tuple[bool, Decimal, int, bytes]:
    total = ZERO if row.total is None else row.total.copy_negate()
    return row.total is None, total, row.rank or 0, byte_order(row.team)


def ranking_file(ranking: Ranking, scores: CompetitionScores, intervals: RankingIntervals | None = None) -> RankingFile:
    """Return the content of `ranking.json`: the ranking with its rules and tools."""
    packages: dict[str, tuple[str, ...]] = {}
    for name, version in sorted(scores.provenance.packages):
        packages[name] = (*packages.get(name, ()), version)
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
        packages=packages,
        intervals=intervals,
        teams=ranking.rows,
    )


def write_ranking(folder: Path, file: RankingFile) -> None:
    """Write `ranking.json` and, with exact scores, `ranking.csv`: a team a line, empty cells for what it has not."""

    def exact(value: Decimal | None) -> str | None:
        return None if value is None else plain(value)

    file.write(folder / RANKING_JSON.name)
    models = dict.fromkeys(model for team in file.teams for model in team.counted.models)
    columns = ["rank", "team", "status", "winner", "normalised", "total", "recognised", "trials"]
    figures = ("score", "recognised", "failed trials", "flagged trials")
    columns += [f"{figure} {model}" for figure in figures for model in models]
    columns += ["disqualified", "rank if ranked", "normalised if ranked"]  # of the latter two, see `with_disqualified`
    columns += ["low", "high"]  # the ends of the 90 % interval of `normalised`
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for team in file.teams:
        counted, would_have = team.counted, team.would_have
        cells: dict[str, object] = {  # None is an empty cell
            "rank": team.rank,
            "team": team.team,
            "status": team.status,
            "winner": "yes" if team.winner else "no",
            "normalised": exact(team.normalised),
            "total": exact(team.total),
            "recognised": counted.recognised,
            "trials": counted.trials,
            "disqualified": team.disqualified,
            "rank if ranked": would_have and would_have.rank,
            "normalised if ranked": would_have and exact(would_have.normalised),
        }
        for model, score in counted.models.items():
            cells |= {
                f"score {model}": exact(score.score) if team.models else None,
                f"recognised {model}": score.recognised,
                f"failed trials {model}": score.failed_trials,
                f"flagged trials {model}": score.flagged_trials,
            }
        writer.writerow(cells | (team.interval._asdict() if team.interval else {}))
    write_text(folder / RANKING_CSV.name, text.getvalue())


def write_metrics(folder: Path, ranking: Ranking) -> None:
    """Write the rounded figures of each scored team into `<folder>/<team>.json`."""
    for row in ranking.rows:
        if row.normalised is None:
            continue
        low, high = row.interval or (None, None)
        flagged = [model.flagged_trials for model in row.models.values() if model.flagged_trials is not None]
        figures = {
            "rank": row.rank,
            "normalised": round(float(row.normalised), _DIGITS),
            "low": low,
            "high": high,
            "recognised": row.recognised,
            "failed_trials": row.failed_trials,
            "flagged_trials": sum(flagged) if flagged else None,
        }
        write_json(folder / f"{row.team}.json", {key: figure for key, figure in figures.items() if figure is not None})


def bootstrap(scores: CompetitionScores, resamples: int, seed: int) -> dict[str, ScoreInterval]:
    """Return the 90 % interval of every team's share of all points; none for 0 resamples.

    The same seed gives the same intervals; 1 000 resamples steady their ends to about a tenth of their width.
    """
    if not resamples:
        return {}
    models = [_measurements(model) for model in scores.models]
    generator = np.random.default_rng(seed)
    chunk = max(1, _DRAWS_AT_ONCE // models[0][0].size)
    counts = [min(chunk, resamples - start) for start in range(0, resamples, chunk)]
    totals = np.concatenate(
        [np.sum([_resample(*model, count, generator) for model in models], axis=0) for count in counts]
    )
    whole = totals.sum(axis=-1, keepdims=True)
    normalised = 100 * totals / np.where(whole > 0, whole, 1)  # 0 of 0 is 0
    lows, highs = np.quantile(normalised, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0).tolist()
    return {
        total.team: ScoreInterval(round(low, _DIGITS), round(high, _DIGITS))
        for total, low, high in zip(scores.totals, lows, highs, strict=True)
    }


def _measurements(model: ModelScores) -> tuple[Floats, Floats, Floats]:
    """Return the stability and the similarity, shape (P, C, T), and the diversity, shape (P, C), of a model."""
    diversity = np.array([[letter.diversity for letter in prompt.letters] for prompt in model.prompts], np.float64)
    trials = [trial for prompt in model.prompts for trial in prompt.trials]
    stability = np.array([trial.stability for trial in trials], np.float64).reshape(*diversity.shape, -1)
    similarity = np.array([trial.similarity for trial in trials], np.float64).reshape(*diversity.shape, -1)
    return stability, similarity, diversity


def _resample(
    stability: Floats, similarity: Floats, diversity: Floats, count: int, generator: np.random.Generator
) -> Floats:
    """Return the prompt scores (count, P) of one model in `count` resamples."""
    shape = (count, *stability.shape)
    drawn = generator.integers(shape[-1], size=shape)
    stability = np.take_along_axis(np.broadcast_to(stability, shape), drawn, axis=-1)
    similarity = np.take_along_axis(np.broadcast_to(similarity, shape), drawn, axis=-1)
    diversity = np.broadcast_to(diversity, shape[:-1])
    weight = _weight(stability.mean(axis=(1, 3))) * _weight(similarity.mean(axis=(1, 3)))
    weight *= _weight(diversity.mean(axis=1))
    letters = (stability * similarity).mean(axis=-1) * diversity * weight[:, None, :]
    scores: Floats = letters.mean(axis=-1)
    return scores


def _weight(mean: Floats) -> Floats:
    weights: Floats = np.maximum(1 - mean, 1 / mean.shape[-1])
    return weights
