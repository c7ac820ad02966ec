"""The table of blame, and the neutral call that decides what the table cannot."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pcgeval.formats.params import Model
from pcgeval.llm import blame
from pcgeval.llm.blame import TEXT, Answer, LiveModel, Sent, same_model, verdict_on
from pcgeval.llm.call_log import CallLog
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Message

SENT = Sent(
    "toy:7b", {"temperature": "temperature", "max_tokens": "num_predict", "top_k": "top_k", "model": "name"}, 200
)
GOOD = {"end": "stop", "prompt_tokens": 12, "output_tokens": 3, "model": "toy:7b"}


def refused(status: int, **body: object) -> Answer:
    return Answer(status, json.dumps(body))


CONTEXT = "This model's maximum context length is 4096 tokens. However, you requested 5200 tokens"
ROOM = "maximum context length is 300 tokens, you requested 320 tokens (120 in the messages, 200 in the completion)"
TABLE = [
    (Answer(200, **GOOD), "reply", None),
    (Answer(200, **GOOD | {"end": "length"}), "reply", None),
    (Answer(200, **GOOD | {"model": "toy:7b-2024-08-06"}), "reply", None),
    (Answer(200, **GOOD | {"end": "abort"}), "undecided", None),
    (Answer(200, **GOOD | {"output_tokens": 0}), "undecided", None),
    (Answer(200, **GOOD | {"prompt_tokens": None}), "undecided", None),
    (Answer(200, **GOOD | {"model": "llama3:8b"}), "settings", "name"),
    (Answer(trouble="no whole answer came in 5 s"), "undecided", None),
    (refused(400, message="temperature must be at most 2.0, got 3.0.", param=None), "settings", "temperature"),
    (refused(400, error={"message": "unsupported", "param": "max_tokens"}), "settings", "num_predict"),
    (refused(422, detail=[{"loc": ["body", "top_k"], "msg": "too large"}]), "settings", "top_k"),
    (refused(400, error="num predict must be positive"), "settings", "num_predict"),
    (refused(400, error={"message": "bad", "param": "messages[0].content"}), "undecided", None),
    (refused(400, error={"message": CONTEXT, "param": "messages"}), "request", None),
    (refused(400, error={"message": ROOM, "param": "max_tokens"}), "settings", "num_predict"),
    (refused(400, error={"code": "content_filter", "message": "flagged"}), "request", None),
    (refused(403, error={"message": "flagged by moderation"}), "request", None),
    (refused(401, error={"message": "bad key"}), "settings", None),
    (refused(404, error={"message": "model not found"}), "settings", "name"),
    (refused(429, error={"code": "insufficient_quota"}), "settings", None),
    (refused(429, error="temperature of the server too high"), "server", None),
    (refused(500, error="temperature sensor: runner terminated"), "undecided", None),
    (refused(400, error="No models loaded. Please load a model."), "undecided", None),
]


@pytest.mark.parametrize(("answer", "blame", "field"), TABLE)
def test_the_table_of_blame(answer: Answer, blame: str, field: str | None) -> None:
    verdict = verdict_on(answer, SENT)
    assert (verdict.blame, verdict.field) == (blame, field)
    assert (verdict.failure is not None) == (blame == "request")


def test_names_that_mean_the_same_model() -> None:
    assert same_model("llama3", "library/llama3:latest")
    assert same_model("openai/gpt-4o", "gpt-4o-2024-08-06")
    assert same_model("model", "/models/model.gguf")
    assert not same_model("llama3:8b", "llama3:70b")
    assert not same_model("gpt-4", "gpt-4o")


class Scripted:
    """A backend that plays one outcome for each trial's request, and one for each neutral request."""

    def __init__(self, trials: Iterator[object], neutrals: Callable[[], object]) -> None:
        self.trials, self.neutrals = trials, neutrals

    def digest(self) -> str:
        return "d"

    def chat(self, request: ChatRequest, _: float) -> ChatReply:
        outcome = self.neutrals() if request.messages[0].content == TEXT else next(self.trials)
        if isinstance(outcome, Answer):
            raise CallError("it failed", verdict_on(outcome, SENT), outcome.status, outcome.body, outcome.wait)
        return outcome  # type: ignore[return-value]


REPLY = ChatReply("ready", 9, 2, "stop", 0.1)
SLOW = ChatReply("ready", 9, 2, "stop", 60.0)
BROKEN, HANGS, BUSY = refused(500, error="died"), Answer(trouble="no whole answer came"), refused(503, error="busy")
WORDS = refused(400, error="your prompt about temperature is refused")
FILTER, TOO_LONG = refused(400, error={"code": "content_filter"}), refused(400, error={"message": CONTEXT})
ASKED = ChatRequest("toy:7b", "d", (Message("user", "Build."),), {})


def live(trials: list[object], neutrals: Callable[[], object] = lambda: REPLY, outage: float = 0.05) -> LiveModel:
    started = served(trials, neutrals, outage)
    started.begin()
    return started


def served(trials: list[object], neutrals: Callable[[], object], outage: float, *, judge: bool = False) -> LiveModel:
    request = blame.neutral_request(Model(backend="ollama", name="toy:7b"), adaptable=judge)
    backend = Scripted(iter(trials), neutrals)
    return LiveModel(backend, request, lambda: 9.0, outage, CallLog(None), lambda _: None)


def ask(model: LiveModel) -> blame.Outcome:
    return model.ask(ASKED, lambda: 9.0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "PAUSE", 0.001)


@pytest.mark.parametrize(
    ("outcomes", "kind", "attempts"),
    [
        ([REPLY], None, 0),
        ([BROKEN, REPLY], None, 1),
        ([BROKEN, BROKEN], "request-fails", 2),
        ([HANGS, HANGS], "request-fails", 2),
        ([WORDS, WORDS], "request-fails", 2),  # words alone are no proof of a setting
        ([BUSY, BUSY, REPLY], None, 2),
        ([BUSY] * 6, "server-failed", 6),
        ([BUSY, *[BROKEN] * 5], "server-failed", 6),
        ([FILTER, FILTER], "filtered", 2),
        ([FILTER, REPLY], None, 1),
        ([TOO_LONG, TOO_LONG], "context-exceeded", 2),
        ([BUSY, TOO_LONG, TOO_LONG], "context-exceeded", 3),
        ([BROKEN, FILTER], "request-fails", 2),
        ([refused(403, error="blocked by the firewall")] * 2, "request-fails", 2),
        ([refused(422, detail="insufficient_quota is what your prompt says")] * 2, "request-fails", 2),
        ([refused(404, error="no endpoint supports this input")] * 2, "request-fails", 2),
        ([refused(429, error="Request too large: tokens per min: Limit 10, Requested 20")] * 2, "context-exceeded", 2),
    ],
)
def test_a_neutral_call_decides_whose_a_failed_request_is(outcomes: list[object], kind: str | None, attempts: int):
    outcome = ask(live(outcomes))
    assert (outcome.failure and outcome.failure.kind) == kind
    assert len(outcome.attempts) == attempts
    assert (outcome.reply is None) == (kind is not None)


@pytest.mark.parametrize(("first", "trial_seconds"), [(REPLY, None), (SLOW, 10.0)])
def test_a_slow_neutral_call_makes_a_time_out_the_servers(first: object, trial_seconds: float | None):
    """It is slow beside the first one, or takes longer than a call of a trial may."""
    neutrals = iter([first, *[SLOW] * 9])
    model = live([HANGS] * 6, lambda: next(neutrals))
    model.trial_seconds = trial_seconds or model.trial_seconds
    assert ask(model).failure.kind == "server-failed"


def test_a_server_that_failed_others_now_and_then_has_to_fail_a_request_more_often():
    model = live([BROKEN, REPLY, BROKEN, BROKEN, REPLY, *[BROKEN] * 4])
    assert ask(model).reply
    assert ask(model).reply  # two failures prove nothing here any more
    assert len(ask(model).attempts) == 4


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refused(400, error="temperature must be 2 at most"), "temperature"),
        (BROKEN, "outage_seconds"),
        (refused(400, error={"message": CONTEXT}), "raise the context"),
        (refused(400, error="the prompt is too long"), "raise the context"),  # of what size it does not say
        (refused(403, error="Your account was flagged for potential abuse"), "look at the account"),
        (refused(424, error="The moderation service is unavailable"), "outage_seconds"),
    ],
)
def test_a_neutral_call_that_fails_stops_the_model_and_decides_about_no_trial(answer: Answer, words: str):
    with pytest.raises(LlmError, match=words):
        live([REPLY], lambda: answer)
    answers = iter([REPLY, *[answer] * 99])
    model = live([answer] * 9, lambda: next(answers))  # from some trial on, every request is refused alike
    with pytest.raises(LlmError, match=words):
        ask(model)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, on a clock that only they move."""
    pauses: list[float] = []
    monkeypatch.setattr(blame, "PAUSE", 1.0)
    monkeypatch.setattr(blame, "time", SimpleNamespace(monotonic=lambda: sum(pauses)))
    monkeypatch.setattr(LiveModel, "_pause", lambda _, seconds: pauses.append(seconds))
    return pauses


@pytest.mark.parametrize("answer", [BROKEN, BUSY, replace(BUSY, wait=3600.0)])
def test_a_dead_server_is_waited_for_once_and_no_longer_than_an_outage_may_last(answer: Answer, slept: list[float]):
    model = served([answer, answer], lambda: answer, 15.0, judge=True)
    for _ in range(2):
        with pytest.raises(LlmError, match="answered no neutral request for 15 s"):
            ask(model)
    assert sum(slept) == 15


@pytest.mark.parametrize(("wait", "pauses"), [(0.0, [1, 2, 4, 8, 16]), (30.0, [30] * 5)])
def test_a_judge_waits_for_a_server_with_too_many_requests(wait: float, pauses: list[float], slept: list[float]):
    answer = replace(refused(429, error="too many requests"), wait=wait)
    model = served([*[answer] * 5, REPLY], lambda: pytest.fail("it is there"), 15.0, judge=True)
    assert ask(model).reply
    assert slept == pauses
    model = served([answer] * 6, lambda: answer, 15.0, judge=True)
    with pytest.raises(LlmError, match="answered no neutral request"):
        ask(model)
    assert sum(slept[5:]) == sum(pauses) + 120
