"""Estimate what gradings would cost, from the prompts that they would send; no call is made.

The estimate takes ten files from the top folder where the model would choose, and answers as long as the model's logged
answers of the same kind, or else a stated figure. It leaves out calls after answers that cannot be read. A token is
four bytes; the endpoint's cache is taken to hold the beginning that a prompt shares with the one before.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pcgeval.core.files import sha256_file
from pcgeval.judge.answers import MAX_PICKED
from pcgeval.judge.calls import JudgeClient
from pcgeval.judge.settings import GradingTask
from pcgeval.judge.simple import LeafJudge
from pcgeval.llm.backends import open_backend
from pcgeval.llm.local_models import model_file
from pcgeval.llm.protocol import usual_tokens
from pcgeval.rubric.record import CallUsage
from pcgeval.rubric.tree import RESULT_ANALYSIS

# tokens of an answer where none was logged: o3-mini with high effort wrote about 1 260 for a grading call, its thoughts
# included; other models' words without thoughts were 60 to 300
_USUAL_ANSWERS = {"rank": 100, "grade": 300}
_THOUGHTS = {"rank": 500, "grade": 960}
_USUAL_ROOM = 4_000  # tokens; a model with more room for an answer thinks
_LEAST_CACHED = 1_024  # tokens
_COUNTS = ("calls", "known_calls", "prompt_tokens", "cached_tokens", "output_tokens", "leaves_of_results")


@dataclass
class GradingPlan:
    """The calls that a grading would still make, about, and how many have replies already, which cost nothing."""

    name: str  # of the grading
    calls: int = 0  # that it would make
    known_calls: int = 0  # that the log answers
    prompt_tokens: int = 0  # that the model would read
    cached_tokens: int = 0  # of these, what its endpoint would have in its cache
    output_tokens: int = 0  # that it would write
    leaves_of_results: int = 0  # leaves about results that are asked about only after reproduce.sh has made some
    cost: float | None = 0.0  # in US dollars; None where the model's price is unknown and it would be asked


def total_plan(plans: Sequence[GradingPlan]) -> GradingPlan:
    """Return the plan of all gradings together."""
    costs = [plan.cost for plan in plans if plan.cost is not None]
    sums = {name: sum(getattr(plan, name) for plan in plans) for name in _COUNTS}
    return GradingPlan("all", **sums, cost=sum(costs) if len(costs) == len(plans) else None)


def plan_grading(name: str, task: GradingTask, client: JudgeClient) -> GradingPlan:
    """Return what a grading would cost; the client may have a log that is opened for reading alone.

    Raises RubricError if nothing would be graded, and LlmError if the model is not where it should be.
    """
    settings, model = client.settings, client.settings.model
    plan = GradingPlan(name)
    if settings.judge != "simple" or model is None or settings.is_replay:
        return plan
    task = replace(task, rubric=settings.cut(task.rubric))
    if client.digest is None and model.backend == "llamacpp":  # to open it would take its memory
        client.digest = sha256_file(model_file(model.name))
    elif client.digest is None and model.backend == "ollama":  # its list of models: nothing is asked
        client.digest = open_backend(model).digest()
    judge, before = LeafJudge(task, client), ""
    asked = [leaf for leaf in task.rubric.leaves if judge.asks_about(leaf)]
    # the files that leaves have chosen before decide in which order the prompts show them
    ranked = ((leaf, files) for leaf in asked if len(files := judge.offered(leaf)) > MAX_PICKED)
    judge.rank_all([leaf for leaf, files in ranked if client.knows(judge.rank_call(leaf, files))], 1)
    usual = {kind: _answer_tokens(client, kind) for kind in _USUAL_ANSWERS}
    for leaf in asked:
        if judge.zero_reason(leaf) is not None:
            plan.leaves_of_results += leaf.task_category == RESULT_ANALYSIS
            continue
        for call in judge.planned_calls(leaf):
            if client.knows(call):
                plan.known_calls += 1
                continue
            prompt = "\n".join(message.content for message in client.fitted(call).messages)
            cached = usual_tokens(os.path.commonprefix([before, prompt]))  # noqa: RUF071 - of texts, not of paths
            before = prompt
            plan.calls += 1
            plan.prompt_tokens += usual_tokens(prompt)
            plan.cached_tokens += cached if cached >= _LEAST_CACHED else 0
            plan.output_tokens += usual[call.kind]
    if plan.calls:
        price, tokens = settings.price, (plan.prompt_tokens, plan.output_tokens, plan.cached_tokens)
        plan.cost = None if price is None else price.cost(*tokens)
    return plan


def _answer_tokens(client: JudgeClient, kind: str) -> int:
    """Return the mean tokens of the model's logged answers to calls of this kind, else the stated figure."""
    settings = client.settings
    calls = (call for call in client.log.known if call.kind == kind and call.model == settings.judge_model.name)
    if lengths := [CallUsage.of(call.reply).output_tokens for call in calls if call.reply is not None]:
        return round(sum(lengths) / len(lengths))
    thinks = (settings.answer_tokens or 0) > _USUAL_ROOM
    return _USUAL_ANSWERS[kind] + (_THOUGHTS[kind] if thinks else 0)
