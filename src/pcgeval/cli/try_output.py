"""The output of `pcgeval try`: each trial as it ends, and the means of the letters at the end."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from pcgeval.cli.level_output import level_lines
from pcgeval.cli.options import print_json, print_lines, print_table
from pcgeval.core.console import count, duration
from pcgeval.core.files import read_text
from pcgeval.core.layout import OFFICIAL_RESULTS, Trial, trials
from pcgeval.core.params import Model, Params
from pcgeval.core.stage_files import TrialRow, read_csv
from pcgeval.core.trials import SuppliedBlocks, TrialRecord
from pcgeval.core.untrusted import printable_line, printable_text
from pcgeval.evaluator.level_score import LevelScore
from pcgeval.scoring.official_files import TRIAL_SCORES
from pcgeval.similarity.diversity import diversity

_SHOWN_WIDTH = 160  # characters of a line of a program or model
_DIGITS = 7  # of a diversity, as in the official files


@dataclass(frozen=True)
class TriedTrial:
    """One trial and its level; `is_new` if it was done just now."""

    team: str
    trial: Trial
    record: TrialRecord
    level: LevelScore  # one that failed in `generate` if there is no response
    response: Path
    picture: Path | None
    printed: Path | None  # the output of a program
    supplied: SuppliedBlocks
    is_new: bool

    @property
    def seconds(self) -> float:
        """Seconds that the model took for all calls of the trial."""
        return sum(exchange.reply.seconds for exchange in self.record.exchanges)

    def __str__(self) -> str:
        """Return the trial as a line: its scores, or why it has none."""
        cost = f"{count(len(self.record.exchanges), 'call')}, {self.record.tokens} tokens, {self.seconds:.1f} s"
        when = "" if self.is_new else ", done before"
        return f"{self.trial.letter}{self.trial.number}: {self.level.verdict} ({cost}{when})"

    def to_json(self) -> dict[str, object]:
        """Return the trial as values for JSON."""
        return {
            "trial": self.trial.number,
            **self.level.to_dict(),
            "picture": str(self.picture) if self.picture else None,
            "printed": str(self.printed) if self.printed else None,
            "calls": len(self.record.exchanges),
            "tokens": self.record.tokens,
            "supplied": asdict(self.supplied),
            "seconds": round(self.seconds, 3),
            "flags": [{"kind": flag.kind, "detail": flag.detail} for flag in self.record.flags],
        }


@dataclass(frozen=True)
class LetterSummary:
    """The means over all trials of a letter; failed trials count as 0."""

    team: str
    letter: str
    trials: int
    failed: int | None  # None if it is unknown
    stability: float
    similarity: float
    score: float
    diversity: float | None  # None for a single trial


def trial_lines(tried: TriedTrial, width: int) -> Iterator[str]:
    """Yield a trial's scores or its failure, the level before and after, and the output of its program."""
    yield str(tried)
    if tried.supplied.supplied:
        yield f"  {tried.supplied}"
    yield from (printable_text(f"  flagged: {flag.kind}: {flag.detail}") for flag in tried.record.flags)
    if tried.level.simulated:
        yield from (f"    {line}".rstrip() for line in level_lines(tried.level, width - 4))
    elif tried.record.reason is None:  # there is a response without a level: its end shows why
        yield from ("  the response ends:", *_last_lines(tried.response, 6))
    cut_off = [exchange for exchange in tried.record.exchanges if exchange.reply.done_reason == "length"]
    if cut_off:
        tokens = cut_off[-1].reply.output_tokens
        yield f"  the model's reply was cut off after {tokens} tokens, the model's num_predict or num_ctx"
    if tried.printed:
        yield from (f"  printed, {tried.printed}:", *_last_lines(tried.printed, 20))
    yield from (f"  {path}" for path in (tried.response, tried.picture) if path and path.stat().st_size)


def _last_lines(path: Path, most: int) -> Iterator[str]:
    """Yield the last lines of a file, where an error stands, each cut to a width."""
    lines = printable_text(read_text(path)).splitlines()
    if len(lines) > most:
        yield f"  | [lines before these: {len(lines) - most}]"
    for line in lines[-most:]:
        yield f"  | {line if len(line) <= _SHOWN_WIDTH else f'{line[:_SHOWN_WIDTH]}...'}"


def print_summary(tried: Sequence[TriedTrial], competition: Params, params: Params, *, json: bool) -> None:
    """Print the means of the letters beside those of the competition's baseline, or everything as JSON.

    Args:
        tried: The trials.
        competition: The competition.
        params: The same, reduced to the letters and the model that were tried.
        json: Print JSON.
    """
    ((_, model),) = params.models.items()
    letters = _tried_letters(tried, params)
    baseline = _baseline_letters(competition, model, params.competition.characters)
    full_trials = len(list(trials(competition)))
    seconds = full_trials * sum(trial.seconds for trial in tried) / len(tried)  # of a whole evaluation
    if json:
        values = {
            "trials": [trial.to_json() for trial in sorted(tried, key=lambda trial: trial.trial)],
            "letters": [asdict(letter) for letter in letters],
            "baseline": [asdict(letter) for letter in baseline],
            "full_run": {"trials": full_trials, "seconds": round(seconds, 1)},
        }
        print_json(values)
        return
    columns = ("letter", "team", "trials", "failed", "stability", "similarity", "score", "diversity")
    in_order = sorted([*letters, *baseline], key=lambda letter: letter.letter)
    print_table((*columns, "score x diversity"), map(_row, in_order))
    failed = sum(trial.level.reason is not None for trial in tried)
    outlook = f"; a full run with this model, {full_trials} trials, takes about {duration(seconds)}" if seconds else ""
    notes = [
        "The figures are means of all trials, failed ones as 0; a competition multiplies them by the letter's weight.",
        f"{count(len(tried), 'trial')}, {failed} failed{outlook}",
    ]
    if not baseline:
        notes.insert(0, "In a competition's folder with results, the table also shows the baseline with this model.")
    print_lines(notes)


def _tried_letters(tried: Sequence[TriedTrial], params: Params) -> list[LetterSummary]:
    summaries = []
    for letter in sorted({trial.trial.letter for trial in tried}):
        of_letter = [trial for trial in tried if trial.trial.letter == letter]
        levels = [trial.level for trial in of_letter]
        vectors = [
            level.embedding if params.diversity.vectors == "cls" else tuple(level.probabilities.values())
            for level in levels
            if level.simulated
        ]
        distance = round(diversity(vectors, len(levels)), _DIGITS) if len(levels) > 1 else None
        failed = sum(level.reason is not None for level in levels)
        measured = [(level.stability, level.similarity) for level in levels]
        summaries.append(_letter_summary(of_letter[0].team, letter, measured, failed, distance))
    return summaries


def _baseline_letters(params: Params, model: Model, letters: str) -> list[LetterSummary]:
    """Return the means of the competition's baseline with the same model, by its last evaluation if there is one."""
    team = params.scoring.baseline
    keys = [key for key, other in params.models.items() if (other.name, other.options) == (model.name, model.options)]
    table = next((path for key in keys if (path := OFFICIAL_RESULTS / key / TRIAL_SCORES).is_file()), None)
    if table is None or team is None:
        return []
    rows = [row for row in read_csv(TrialRow, table) if row.team == team and row.letter in letters]
    summaries = []
    for letter in sorted({row.letter for row in rows}):
        of_letter = [row for row in rows if row.letter == letter]
        measured = [(float(row.stability), float(row.similarity)) for row in of_letter]
        summaries.append(_letter_summary(team, letter, measured, None, float(of_letter[0].diversity)))
    return summaries


def _letter_summary(
    team: str, letter: str, measured: Sequence[tuple[float, float]], failed: int | None, distance: float | None
) -> LetterSummary:
    return LetterSummary(
        team=team,
        letter=letter,
        trials=len(measured),
        failed=failed,
        stability=fmean(stability for stability, _ in measured),
        similarity=fmean(similarity for _, similarity in measured),
        score=fmean(stability * similarity for stability, similarity in measured),
        diversity=distance,
    )


def _row(letter: LetterSummary) -> list[str]:
    """Return a line of the table; a dash marks an unknown figure."""
    row = [letter.letter, printable_line(letter.team), str(letter.trials)]
    row += ["-" if letter.failed is None else str(letter.failed), f"{letter.stability:.3f}"]
    row += [f"{letter.similarity:.4f}", f"{letter.score:.4f}"]
    if letter.diversity is None:
        return [*row, "-", "-"]
    return [*row, f"{letter.diversity:.4f}", f"{letter.score * letter.diversity:.6f}"]
