"""The taskset of level generation: rewards of hand-built traces, groups, and whole episodes."""

import asyncio
from pathlib import Path
from statistics import fmean

import pytest
from pydantic import ValidationError

from pcgeval.preview.level_score import score_level
from pcgeval.similarity.classifier import loaded_classifier
from pcgeval.similarity.diversity import diversity

vf = pytest.importorskip("verifiers.v1", reason="`make environments` installs the extra verifiers")

from pcgeval.rl.level_environment import LevelEnv, LevelTask, LevelTaskset, LevelTasksetConfig  # noqa: E402

CLASSIFIER = str(Path(__file__).parents[2] / "data" / "classifier")
TASK = {"similarity": {"model": CLASSIFIER}}
ONE_I = "```\ndrop_block('b13', 5)\ndrop_block('b13', 5)\n```"
OTHER_I = "```\ndrop_block('b31', 5)\ndrop_block('b13', 5)\ndrop_block('b31', 5)\n```"
NO_LEVEL = "I would rather not."


def taskset(**settings) -> LevelTaskset:
    return LevelTaskset(LevelTasksetConfig(id="pcgeval-levels", **{"task": TASK, **settings}))


def task_of_i(**settings) -> LevelTask:
    return next(iter(taskset(letters="I", **settings)))


def environment(**settings) -> LevelEnv:
    return vf.load_environment(
        vf.resolve_env_config({"taskset": {"id": "pcgeval-levels", "letters": "I", "task": TASK}, **settings})
    )


def expected(reply: str):
    return score_level(reply, "I", loaded_classifier(CLASSIFIER, device="cpu"), read_as="response")


def test_every_letter_is_a_task_once_and_a_teams_prompt_can_be_asked(tmp_path):
    tasks = list(taskset())
    assert "".join(task.data.letter for task in tasks) == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert "the capital letter A " in tasks[0].data.prompt
    (tmp_path / "prompt.txt").write_text("Build <OBJECT>, the letter <OBJECT>.")
    assert task_of_i(prompt=tmp_path / "prompt.txt").data.prompt == "Build I, the letter I."
    with pytest.raises(ValidationError, match="pattern"):
        taskset(letters="Aa")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(OTHER_I, None), (NO_LEVEL, "no drop_block call"), (None, "the response is empty")],
)
def test_the_reward_of_a_trace_is_stability_times_similarity_and_0_without_a_level(trace_of, reply, reason):
    task, level = task_of_i(), expected(reply or "")
    trace = trace_of(task, reply)
    asyncio.run(task.score(trace))
    assert trace.reward == trace.rewards["level_score"].score == level.stability * level.similarity
    assert (trace.reward > 0) == (reason is None)
    assert trace.metrics == {"stability": level.stability, "similarity": level.similarity, "blocks": len(level.blocks)}
    assert (reason or "") in (trace.info["level"]["reason"] or "")


def test_the_classifier_has_the_precision_of_the_settings(trace_of):
    pytest.importorskip("torch", reason="float64 alone needs no torch")
    settings = {"similarity": {"model": CLASSIFIER, "device": "cpu", "precision": "bfloat16"}}
    trace = trace_of(task_of_i(task=settings), OTHER_I)
    asyncio.run(task_of_i(task=settings).score(trace))
    coarse = loaded_classifier(CLASSIFIER, device="cpu", precision="bfloat16")
    scored = score_level(OTHER_I, "I", coarse, read_as="response")
    assert trace.reward == scored.score != expected(OTHER_I).score


def test_a_missing_classifier_gives_no_reward_instead_of_0(trace_of, tmp_path):
    task = task_of_i(task={"similarity": {"model": str(tmp_path)}})
    trace = trace_of(task, ONE_I)
    with pytest.raises(vf.TaskError, match=r"config\.json"):
        asyncio.run(task.score(trace))
    assert trace.rewards == {"level_score": None}


def group(trace_of, *replies):
    """Return an episode whose traces are scored and ok."""
    task = task_of_i()
    traces = [trace_of(task, reply) for reply in replies]
    for trace in traces:
        asyncio.run(task.score(trace))
    facts = vf.TraceTask(type="LevelTask", data=task.data)
    return task, vf.Episode(env=vf.EnvInfo(id="pcgeval-levels"), task=facts, traces=traces)


def test_a_groups_diversity_is_the_competitions(trace_of):
    replies = (ONE_I, OTHER_I, NO_LEVEL, ONE_I)
    task, episode = group(trace_of, *replies)
    asyncio.run(environment(diversity_weight=0.5).finalize(task, episode))
    levels = [expected(reply) for reply in replies]
    whole = diversity([list(level.probabilities.values()) for level in levels if level.probabilities], 4)
    scores = [level.stability * level.similarity for level in levels]
    rewards = [trace.rewards["diversity"].score for trace in episode.traces]
    for trace, score, reward in zip(episode.traces, scores, rewards, strict=True):
        assert trace.metrics["letter_score"] == pytest.approx(whole * fmean(scores))
        assert trace.reward == pytest.approx(score + 0.5 * reward)
    assert rewards[1] > rewards[0] == rewards[3] > rewards[2] == 0  # one differs, two are alike, one has no level
    distances = [reward / score if score else 0 for reward, score in zip(rewards, scores, strict=True)]
    assert fmean(distances) == pytest.approx(whole)


@pytest.mark.parametrize(("replies", "is_ok"), [((ONE_I, OTHER_I), False), ((ONE_I,), True)])
def test_a_failed_or_single_attempt_has_no_diversity(trace_of, replies, is_ok):
    task, episode = group(trace_of, *replies)
    episode.traces[0].ok = is_ok
    asyncio.run(environment().finalize(task, episode))
    assert all("diversity" not in trace.rewards for trace in episode.traces)


def test_a_whole_episode(play):
    episode = play(environment(attempts=3), f"Here it is:\n{ONE_I}")
    assert [trace.errors for trace in episode.traces] == [[], [], []]
    for trace in episode.traces:
        assert trace.rewards["level_score"].score == expected(ONE_I).score
        assert trace.metrics["group_diversity"] == pytest.approx(0, abs=1e-9)
