"""The stages score and rank: from the measurements to the official files and the ranking."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcgeval.core.files import rewritten_folder, write_text
from pcgeval.formats.layout import (
    DATA,
    METRICS,
    OFFICIAL_RESULTS,
    RESULTS,
    STAGE_DIRS,
    SUBMISSIONS,
    stage_dir,
    summaries_file,
)
from pcgeval.formats.params import Params
from pcgeval.formats.results import (
    ConstantsFile,
    LetterRow,
    PromptRow,
    RankedTeam,
    RankingIntervals,
    TrialRow,
    csv_text,
    result_hash,
)
from pcgeval.formats.stages import read_outcomes
from pcgeval.formats.trials import best_levels, read_summaries
from pcgeval.scoring.formulas import ModelScores, score_competition
from pcgeval.scoring.inputs import CompetitionResults, ScoringError, ScoringRules, TeamResults, read_team
from pcgeval.submissions.load import Submission, load_submissions

if TYPE_CHECKING:
    from pcgeval.scoring.ranking import Ranking

CONSTANTS = "constants.json"
TRIAL_SCORES = "trial_scores.csv"
CHARACTER_SCORES = "character_scores.csv"
PROMPT_SCORES = "prompt_scores_ranks.csv"
OFFICIAL_NAMES = (CONSTANTS, TRIAL_SCORES, CHARACTER_SCORES, PROMPT_SCORES)
UNRANKED = -1  # how the published tables of 2024 mark a baseline


def score_stage(params: Params, root: Path = Path()) -> None:
    """Write the four official result files of each model to `results/official/<model>`.

    Raises:
        ScoringError: Measurements are missing or cannot be scored.
        SubmissionError: A team's submission cannot be read.
    """
    rules, submissions = rules_of(params), scored_submissions(params, root)
    baselines = [submission.team for submission in submissions if submission.decisions.role == "baseline"]
    with rewritten_folder(root / OFFICIAL_RESULTS, keep=root / DATA / "similarity"):
        for model in params.models:
            results = read_measured(params, (model,), submissions, root)
            scores = score_competition(results, rules).models[0]
            official_files(scores, rules, baselines).write(root / OFFICIAL_RESULTS / model)


def rank_stage(params: Params, root: Path = Path()) -> "Ranking":
    """Write `results/ranking.csv`, `ranking.json` and the metrics over all models; return the ranking.

    The stage reads the measurements, because the official files name neither failed trials nor engine and classifier.

    Raises:
        ScoringError: Measurements are missing, cannot be scored, or have different engines or classifiers.
        SubmissionError: A team's submission cannot be read.
    """
    from pcgeval.scoring import ranking as ranks  # noqa: PLC0415 - numpy, which no other stage of this module needs

    rules, submissions = rules_of(params), load_submissions(params.teams, root / SUBMISSIONS).values()
    results = read_measured(params, params.models, submissions, root)
    resamples, seed = params.scoring.bootstrap, params.competition.seed
    entrants = [
        ranks.Entrant(
            submission.team, submission.prompt_length, submission.decisions.role, submission.decisions.disqualified
        )
        for submission in submissions
    ]
    scores = score_competition(
        results.of([entrant.team for entrant in entrants if entrant.disqualified is None]), rules
    )
    ranking = ranks.rank(scores, entrants, ranks.bootstrap(scores, resamples, seed))
    ranking = ranks.with_disqualified(ranking, results, rules, entrants)
    ranking = replace(ranking, rows=tuple(_with_usage(row, results, root) for row in ranking.rows))
    intervals = RankingIntervals(level=ranks.LEVEL, resamples=resamples, seed=seed) if resamples else None
    file = ranks.ranking_file(ranking, scores, intervals)
    file = file.model_copy(update={"result": result_hash(params, file, root)})
    ranks.write_ranking(root / RESULTS, file)
    ranks.write_metrics(root / METRICS, ranking)
    return ranking


def _with_usage(row: RankedTeam, results: CompetitionResults, root: Path) -> RankedTeam:
    """Add the failures of a team's trials, and the flags, supplied blocks and answering models of their summaries."""
    if row.would_have:
        return row.model_copy(update={"would_have": _with_usage(row.would_have, results, root)})
    models = dict(row.models)
    levels: list[tuple[str, float, bool]] = []  # see `best_levels`
    for model, score in row.models.items():
        outcomes = read_outcomes(root / stage_dir("stability", model, row.team))
        kinds = Counter(outcome.failure.kind for outcome in outcomes.values() if outcome.failure)
        counts: dict[str, Any] = {"failures": dict(sorted(kinds.items()))}
        if summaries := read_summaries(root / summaries_file(model, row.team)):
            usages = [summary.usage for summary in summaries.values()]
            supplied = {
                trial
                for trial, summary in summaries.items()
                if summary.usage.supplied.whole and outcomes[trial].failure is None
            }
            likeness = results.models[model][row.team].likeness
            levels += [(trial.letter, float(value), trial in supplied) for trial, value in likeness.items()]
            counts |= {
                "flagged_trials": sum(bool(usage.flags) for usage in usages),
                "blocks": sum(usage.supplied.blocks for usage in usages),
                "supplied": sum(usage.supplied.supplied for usage in usages),
                "supplied_levels": len(supplied),
                "answered_by": tuple(sorted({name for usage in usages for name in usage.answered_by})),
            }
        models[model] = score.model_copy(update=counts)
    best = dict(zip(("best_levels", "supplied_best_levels"), best_levels(levels), strict=True)) if levels else {}
    return row.model_copy(update={"models": models, **best})


def scored_submissions(params: Params, root: Path = Path()) -> list[Submission]:
    """Return the submissions of the teams that are not disqualified; raise SubmissionError if one cannot be read."""
    submissions = load_submissions(params.teams, root / SUBMISSIONS).values()
    return [submission for submission in submissions if submission.decisions.disqualified is None]


def rules_of(params: Params) -> ScoringRules:
    """Return the rules that params.yaml sets."""
    return ScoringRules(
        letters=params.competition.characters,
        trials=params.competition.trials,
        official_quirks=params.scoring.official_quirks,
        baseline=params.scoring.baseline,
    )


def read_measured(
    params: Params, models: Iterable[str], submissions: Iterable[Submission], root: Path = Path()
) -> CompetitionResults:
    """Read the measurements of some teams with some models.

    Raises:
        FileError: A file is not in the format of its stage.
        ScoringError: One of a letter's three files is missing.
    """
    rules = rules_of(params)
    teams = [submission.team for submission in submissions]
    results: dict[str, dict[str, TeamResults]] = {model: {} for model in models}
    for model, team in product(results, teams):
        measured = read_team({name: root / stage_dir(name, model, team) for name in STAGE_DIRS}, rules)
        if incomplete := [letter for letter, files in measured.letters.items() if not files.complete]:
            raise ScoringError(
                f"model {model!r}, team {team!r}: letter {incomplete[0]} lacks one of its three files. "
                "Run `dvc repro` to make it."
            )
        results[model][team] = measured
    return CompetitionResults(results)


@dataclass(frozen=True)
class OfficialFiles:
    """The four official files of one model."""

    constants: ConstantsFile
    trials: tuple[TrialRow, ...]
    letters: tuple[LetterRow, ...]
    prompts: tuple[PromptRow, ...]

    def write(self, folder: Path) -> None:
        """Write the four files into a folder under their official names."""
        write_text(folder / CONSTANTS, self.constants.to_text())
        write_text(folder / TRIAL_SCORES, csv_text(TrialRow, self.trials))
        write_text(folder / CHARACTER_SCORES, csv_text(LetterRow, self.letters))
        write_text(folder / PROMPT_SCORES, csv_text(PromptRow, self.prompts))


def official_files(scores: ModelScores, rules: ScoringRules, baselines: Collection[str] = ()) -> OfficialFiles:
    """Return the official files of one model.

    Teams stand in byte order of their names, in the last file by their scores. By the rules, equal teams share a rank
    (1, 2, 2, 4) and baselines have the rank -1; the official script ranks all teams as 1, 2, 3, 4.
    """
    ordered = sorted(scores.prompts, key=lambda prompt: prompt.normalised, reverse=True)  # equals stay in byte order
    ranked = [prompt.normalised for prompt in ordered if prompt.team not in baselines]
    prompts = []
    for place, prompt in enumerate(ordered, start=1):
        rank = UNRANKED if prompt.team in baselines else 1 + ranked.index(prompt.normalised)
        rank = place if rules.official_quirks else rank
        prompts.append(PromptRow(team=prompt.team, normalised=prompt.normalised, score=prompt.score, rank=rank))
    return OfficialFiles(
        constants=ConstantsFile(total=scores.total, weights=scores.weights),
        trials=tuple(trial for prompt in scores.prompts for trial in prompt.trials),
        letters=tuple(letter for prompt in scores.prompts for letter in prompt.letters),
        prompts=tuple(prompts),
    )
