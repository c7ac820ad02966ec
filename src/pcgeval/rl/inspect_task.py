"""The task of level generation for Inspect: `inspect eval pcgeval/letters`, by the entry point in pyproject.toml."""
# mypy: disable-error-code="import-not-found, untyped-decorator"

import math
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import fmean

from anyio.to_thread import run_sync
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, mean, metric, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from pcgeval.core.files import derived_seed
from pcgeval.formats.layout import LETTERS
from pcgeval.formats.params import Round
from pcgeval.generation.tasks import TEMPERATURE
from pcgeval.preview.level_score import score_level
from pcgeval.similarity.diversity import diversity
from pcgeval.submissions.load import PLACEHOLDER, PROMPT_FILE, Prompt, load_prompt

MEASURES = ("similarity", "stability", "recognised")


@task
def letters(
    letters: str = LETTERS,
    trials: int = 3,
    prompt: str = str(Path(__file__).parent / "prompts" / "level.txt"),
    seed: int = 0,
) -> Task:
    """Build capital letters from blocks, each several times.

    Args:
        letters: Capital letters, each once.
        trials: Samples of each letter, which diversity compares; an epoch would repeat their seeds.
        prompt: A text in which `<OBJECT>` stands for the letter, or a file with one, or a folder with a prompt.txt.
        seed: Decides the seed of each sample, as `competition.seed` in params.yaml does.

    Raises:
        ValidationError: Letters, trials or seed are invalid.
        SubmissionError: The prompt's file is missing, empty or unreadable.
    """
    asked = Round(characters=letters, trials=trials, seed=seed)
    text = _prompt(prompt)
    samples = [
        Sample(
            id=f"{letter}_{number}",
            input=text.for_letter(letter),
            target=letter,
            metadata={"letter": letter, "seed": derived_seed(seed, letter, number)},
        )
        for letter in asked.characters
        for number in range(1, trials + 1)
    ]
    return Task(samples, solver=seeded_generate(), scorer=level(), config=GenerateConfig(temperature=TEMPERATURE))


def _prompt(prompt: str | list[str]) -> Prompt:
    given = prompt if isinstance(prompt, str) else ",".join(prompt)  # Inspect splits texts of the command line
    if PLACEHOLDER in given:
        return Prompt(given)
    path = Path(given)
    return Prompt(load_prompt(path / PROMPT_FILE if path.is_dir() else path))


@solver
def seeded_generate() -> Solver:
    """Ask the model once, with the sample's seed."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        return await generate(state, seed=state.metadata["seed"])

    return solve


@metric(name="diversity")
def mean_diversity() -> Metric:
    """Return the mean of the letters' diversities; a sample without a level has no vector."""

    def compute(scores: list[SampleScore]) -> float:
        vectors_of = defaultdict(list)
        for sample in scores:
            vectors_of[sample.sample_metadata["letter"]].append(sample.score.metadata["probabilities"])
        values = [diversity([*filter(None, vectors)], len(vectors)) for vectors in vectors_of.values()]
        return fmean(values) if values else math.nan

    return compute


@scorer(metrics=[mean_diversity(), {name: [mean(), stderr(cluster="letter")] for name in MEASURES}])
def level() -> Scorer:
    """Score the level of a reply as the competition does; 0 without a level, and the explanation says why."""

    async def score(state: TaskState, target: Target) -> Score:
        # bare calls and levels in XML, which a participant may try, are no answers of the competition
        scored = await run_sync(partial(score_level, state.output.completion, target.text, read_as="response"))
        return Score(
            value={name: float(getattr(scored, name)) for name in MEASURES},
            answer=scored.code,
            explanation=scored.verdict,
            metadata={"probabilities": list(scored.probabilities.values())},
        )

    return score
