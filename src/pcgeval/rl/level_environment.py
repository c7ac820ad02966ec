"""The taskset of level generation: one task per letter, rewarded by stability x similarity, and groups by diversity."""
# mypy: disable-error-code="import-not-found, misc, untyped-decorator"

import asyncio
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import verifiers.v1 as vf
from pydantic import Field

from pcgeval.formats.layout import LETTERS, own_or_packaged
from pcgeval.formats.params import PhysicsParams, Similarity
from pcgeval.preview.level_score import score_level
from pcgeval.similarity.classifier import loaded_classifier
from pcgeval.similarity.diversity import mean_distances
from pcgeval.submissions.load import Prompt, load_prompt


class LevelData(vf.TaskData):
    """One letter to build."""

    letter: str


class LevelTaskConfig(vf.TaskConfig):
    """Settings of the score, with the sections of params.yaml."""

    physics: PhysicsParams = PhysicsParams()
    """The physics engine's parameters."""
    similarity: Similarity = Similarity()
    """The classifier: a folder, or a hub id with its revision; pcgeval's own where there is no data/classifier."""


class LevelTasksetConfig(vf.TasksetConfig):
    """Settings of the tasks: the letters and the prompt."""

    letters: str = Field(LETTERS, pattern="^[A-Z]+$")
    """Capital letters, one task each."""
    prompt: Path = Path(__file__).parent / "prompts" / "level.txt"
    """A file with a prompt in which `<OBJECT>` stands for the letter, such as a team's prompt.txt."""
    task: LevelTaskConfig = LevelTaskConfig()


class LevelTask(vf.Task[LevelData, vf.State, LevelTaskConfig]):
    """Build one letter in one reply."""

    @vf.reward
    async def level_score(self, trace: vf.Trace) -> float:
        """Return stability times similarity of the last reply; 0 without a level, and `trace.info` says why.

        A classifier that cannot be loaded is an error, and the attempt has no reward.
        """
        source, physics = self.config.similarity, self.config.physics
        place = str(own_or_packaged(Path(source.model)))
        settings = source.revision, source.device, source.precision
        classifier = await asyncio.to_thread(loaded_classifier, place, *settings)
        # bare calls and levels in XML, which a participant may try, are no answers of the competition
        reply, letter = trace.last_reply, self.data.letter
        level = await asyncio.to_thread(score_level, reply, letter, classifier, physics, read_as="response")
        scores = {"stability": level.stability, "similarity": level.similarity, "blocks": len(level.blocks)}
        trace.info["level"] = {**scores, "probabilities": list(level.probabilities.values()), "reason": level.reason}
        trace.record_metrics(scores)
        return level.score or 0.0


class LevelTaskset(vf.Taskset[LevelTask, LevelTasksetConfig]):
    """A task for each letter."""

    def load(self) -> Iterator[LevelTask]:
        """Yield the letters' tasks in the order of the configuration; raise SubmissionError for a faulty prompt."""
        prompt = Prompt(load_prompt(self.config.prompt))
        for letter in self.config.letters:
            data = LevelData(id=letter, name=letter, letter=letter, prompt=prompt.for_letter(letter))
            yield LevelTask(data, self.config.task)


class LevelEnvConfig(vf.EnvConfig):
    """Settings of a group of attempts and the weight of its diversity."""

    # a harness without tools, on this machine: no reply is executed
    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())
    attempts: int = Field(4, ge=1)
    """Independent attempts at each letter; diversity compares them with each other."""
    diversity_weight: float = Field(1.0, ge=0)
    """Weight of the reward `diversity`: an attempt's score times its mean distance to the others of its group."""


class LevelEnv(vf.Env[LevelEnvConfig]):
    """A group of attempts at one letter; the diversity follows when all have ended."""

    async def run(self, task: LevelTask, agents: vf.Agents) -> None:
        """Run all attempts of the group at once."""
        async with asyncio.TaskGroup() as attempts:
            for _ in range(self.config.attempts):
                attempts.create_task(agents.agent.run(task))

    async def finalize(self, task: LevelTask, episode: vf.Episode) -> None:
        """Record the group's diversity, unless an attempt was not scored or there was only one.

        An attempt's reward is its score times its mean distance to the others, so that a bad level gains nothing. The
        metric `letter_score` is the competition's: diversity times mean score.
        """
        del task
        traces = episode.traces
        if len(traces) < 2 or not all(trace.ok for trace in traces):
            return
        levels = [trace.info["level"] for trace in traces]
        distances = mean_distances([level["probabilities"] for level in levels], len(levels))
        scores = [level["stability"] * level["similarity"] for level in levels]
        group_diversity = fmean(distances)
        for trace, score, distance in zip(traces, scores, distances, strict=True):
            trace.record_reward("diversity", score * distance, self.config.diversity_weight)
            trace.record_metrics({"group_diversity": group_diversity, "letter_score": group_diversity * fmean(scores)})
