"""The generate step: one response a trial, nothing asked twice, nothing stale kept."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pcgeval.core.layout import Trial, trial_file
from pcgeval.core.params import parse_params
from pcgeval.core.stage_files import read_outcomes
from pcgeval.core.trials import read_record, record_path
from pcgeval.generation.generate import TrialFaultError, generate_stage
from pcgeval.generation.runners import PromptRunner
from pcgeval.generation.tasks import TrialJob, TrialRun, trial_seed
from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.llm.protocol import Backend, CallError, ChatReply, ChatRequest, LlmError
from pcgeval.llm.recorded import RecordedModel
from pcgeval.sandbox.sandbox import SandboxError
from pcgeval.submissions.load import Prompt, Submission

DIGEST = "ab" * 32
VALUES: dict[str, Any] = {
    "competition": {"name": "test", "edition": "1", "characters": "AB", "trials": 2, "seed": 6280},
    "teams": ["alpha"],
    "models": {"m": {"backend": "ollama", "name": "m:1", "digest": DIGEST, "options": {"num_predict": 9}}},
    "limits": {"tokens": 100, "seconds": 50, "prompt_words": 900},
    **{section: {} for section in ("physics", "similarity", "diversity", "scoring", "rubric")},
}


USUAL = ChatReply("", prompt_tokens=5, output_tokens=5, done_reason="stop", seconds=1.0)


@dataclass
class Parrot:
    """A backend that answers with what it was asked, and remembers each request."""

    found: str = DIGEST
    requests: list[ChatRequest] = field(default_factory=list)
    fail_on: str | None = None
    stop_after: int | None = None
    reply: ChatReply = USUAL

    def digest(self) -> str:
        return self.found

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002
        if self.stop_after is not None and len(self.requests) >= self.stop_after:
            raise LlmError("the server went away")
        self.requests.append(request)
        text = request.messages[0].content
        if self.fail_on and self.fail_on in text:
            raise CallError("the prompt is too long")
        return replace(self.reply, text=text)


def run(folder: Path, backend: Parrot | RecordedModel, prompt: str = "Draw <OBJECT>", **changes: Any) -> None:
    params = parse_params({**VALUES, **changes}, "params.yaml")
    submission = Submission("alpha", Prompt(prompt))
    calls = folder.with_name(f"{folder.name}-calls")
    generate_stage(
        params, "m", submission, backend, folder, lambda *_: None, state=folder.parent / "state", calls=calls
    )


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_trial_is_asked_once_with_its_own_seed(tmp_path: Path):
    backend = Parrot()
    run(tmp_path, backend)
    assert [request.messages[0].content for request in backend.requests] == ["Draw A", "Draw A", "Draw B", "Draw B"]
    assert len({request.options["seed"] for request in backend.requests}) == 4
    assert all(request.options["temperature"] == 1 for request in backend.requests)
    assert trial_file(tmp_path, "raw", "alpha", Trial("B", 2)).read_text() == "Draw B"
    run(tmp_path, backend)
    assert len(backend.requests) == 4


def test_a_stopped_run_goes_on_and_ends_with_the_same_bytes(tmp_path: Path):
    stopped = Parrot(stop_after=3)
    with pytest.raises(LlmError):
        run(tmp_path / "a", stopped)
    resumed = Parrot()
    run(tmp_path / "a", resumed)
    assert len(resumed.requests) == 1
    run(tmp_path / "b", Parrot())
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "Build <OBJECT>"},
        {"competition": {**VALUES["competition"], "seed": 1}},
        {"models": {"m": {**VALUES["models"]["m"], "options": {"num_predict": 8}}}},
        {"models": {"m": {**VALUES["models"]["m"], "name": "m:2"}}},
    ],
)
def test_a_trial_made_from_something_else_is_asked_again_and_what_was_is_not_forgotten(
    tmp_path: Path, change: dict[str, Any]
):
    run(tmp_path, Parrot())
    before = snapshot(tmp_path)
    again = Parrot()
    run(tmp_path, again, **change)
    assert len(again.requests) == 4
    run(tmp_path, again)
    assert len(again.requests) == 4
    assert snapshot(tmp_path) == before


def test_another_limit_decides_anew_about_the_same_replies(tmp_path: Path):
    run(tmp_path, Parrot(reply=replace(USUAL, seconds=3.0)))
    again = Parrot()
    run(tmp_path, again, limits={"tokens": 9, "seconds": 50, "prompt_words": 900})
    assert {outcome.reason for outcome in read_outcomes(tmp_path).values()} == {"used 10 tokens; the limit is 9"}
    run(tmp_path, again, limits={"tokens": 99, "seconds": 2, "prompt_words": 900})
    assert {outcome.reason for outcome in read_outcomes(tmp_path).values()} == {None}  # the call ended
    run(tmp_path, again, limits={"tokens": 99, "seconds": 2, "call_seconds": 0.5, "prompt_words": 900})
    assert all("took more than 2 s" in str(outcome.reason) for outcome in read_outcomes(tmp_path).values())
    assert not again.requests


def test_a_damaged_trial_is_made_again_without_a_call(tmp_path: Path):
    run(tmp_path, Parrot())
    before = snapshot(tmp_path)
    trial_file(tmp_path, "raw", "alpha", Trial("A", 1)).write_text("a better answer, written by hand")
    record_path(tmp_path, "alpha", Trial("B", 1)).write_text('{"fingerprint": ')
    again = Parrot()
    run(tmp_path, again)
    assert not again.requests
    assert snapshot(tmp_path) == before


def test_what_no_trial_owns_is_removed(tmp_path: Path):
    run(tmp_path, Parrot())
    before = snapshot(tmp_path)
    for stray in ("Z/alpha_Z_1.txt", "A/alpha_A_3.txt", "note.md"):
        (tmp_path / stray).parent.mkdir(exist_ok=True)
        (tmp_path / stray).write_text("stray")
    run(tmp_path, Parrot())
    assert snapshot(tmp_path) == before


def test_a_failed_call_is_an_empty_response_with_its_reason(tmp_path: Path):
    run(tmp_path, Parrot(fail_on="B"))
    outcomes = read_outcomes(tmp_path)
    assert [outcome.reason for outcome in outcomes.values()] == [
        None,
        None,
        "the prompt is too long",
        "the prompt is too long",
    ]
    assert trial_file(tmp_path, "raw", "alpha", Trial("B", 1)).read_bytes() == b""


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (ChatReply("", 60, 41, "stop", 1.0), "used 101 tokens; the limit is 100"),
        (ChatReply("", 1, 1, "stop", 650.5), "took more than 50 s"),
    ],
)
def test_limits_fail_a_trial(tmp_path: Path, reply: ChatReply, words: str):
    run(tmp_path, Parrot(reply=reply))
    reasons = {outcome.reason for outcome in read_outcomes(tmp_path).values()}
    assert len(reasons) == 1
    assert words in str(reasons.pop())


def test_another_digest_stops_the_run_and_both_are_named(tmp_path: Path):
    with pytest.raises(LlmError) as fault:
        run(tmp_path, Parrot(found="cd" * 32))
    assert DIGEST in str(fault.value)
    assert "cd" * 32 in str(fault.value)


def test_a_reply_with_a_lone_surrogate_is_kept_and_not_asked_again(tmp_path: Path):
    run(tmp_path, Parrot(), prompt="Draw \ud800 <OBJECT>")
    again = Parrot()
    run(tmp_path, again, prompt="Draw \ud800 <OBJECT>")
    assert not again.requests


def test_the_record_tells_all_that_was_asked(tmp_path: Path):
    run(tmp_path, Parrot())
    record = read_record(record_path(tmp_path, "alpha", Trial("A", 1)))
    assert (record.model, record.digest, record.tokens, record.reason) == ("m:1", DIGEST, 10, None)
    assert record.seed == trial_seed(6280, Trial("A", 1))
    assert (
        json.loads(record_path(tmp_path, "alpha", Trial("A", 1)).read_text())["exchanges"][0]["reply"]["seconds"] == 1.0
    )


def test_several_trials_at_once_give_the_same_bytes(tmp_path: Path):
    model = VALUES["models"]["m"]
    run(tmp_path / "one", Parrot(fail_on="B"))
    run(tmp_path / "many", Parrot(fail_on="B"), models={"m": {**model, "concurrency": 3}})
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "many")


def test_a_failed_call_is_recorded_so_that_it_can_be_replayed(tmp_path: Path):
    backend = Parrot(fail_on="B")
    run(tmp_path, backend)
    record = read_record(record_path(tmp_path, "alpha", Trial("B", 1)))
    (failure,) = record.failures
    assert (failure.turn, failure.reason) == (1, "the prompt is too long")
    assert failure.key in {request.key for request in backend.requests}


def test_a_call_that_failed_is_kept_as_the_failure_of_its_trial_only(tmp_path: Path):
    run(tmp_path, Parrot(fail_on="B"))
    again = Parrot()
    run(tmp_path, again)
    assert not again.requests
    record_path(tmp_path, "alpha", Trial("B", 1)).unlink()
    run(tmp_path, again)
    assert [request.messages[0].content for request in again.requests] == ["Draw B"]


RECORDED = {"models": {"m": {**VALUES["models"]["m"], "backend": "recorded"}}}


def replay(folder: Path, recording: Path) -> None:
    run(folder, RecordedModel(recording, DIGEST), **RECORDED)


@pytest.mark.parametrize("change", [{"text": "Another reply"}, {"output_tokens": 96}, {"seconds": 651.0}])
def test_an_edited_recording_wins_over_a_finished_trial(tmp_path: Path, change: dict[str, Any]):
    run(tmp_path / "raw", Parrot(fail_on="B"))
    recording = tmp_path / "recording.jsonl"
    record = read_record(record_path(tmp_path / "raw", "alpha", Trial("A", 1)))
    calls = [LoggedCall(key=each.key, reply=each.reply) for each in record.exchanges]
    for trial in (Trial("A", 2), Trial("B", 1), Trial("B", 2)):
        record = read_record(record_path(tmp_path / "raw", "alpha", trial))
        calls += [LoggedCall(key=each.key, reply=each.reply) for each in record.exchanges]
        calls += [LoggedCall(key=each.key, reason=each.reason) for each in record.failures]
    write_recording(recording, calls)
    before = snapshot(tmp_path / "raw")
    replay(tmp_path / "raw", recording)
    assert snapshot(tmp_path / "raw") == before
    assert calls[0].reply
    calls[0] = LoggedCall(key=calls[0].key, reply=replace(calls[0].reply, **change))
    calls[2] = LoggedCall(key=calls[2].key, reason="another reason")
    write_recording(recording, calls)
    replay(tmp_path / "raw", recording)
    replay(tmp_path / "afresh", recording)
    assert snapshot(tmp_path / "raw") == snapshot(tmp_path / "afresh") != before
    changed = {name for name, content in snapshot(tmp_path / "raw").items() if before[name] != content}
    assert {name.split(".")[0] for name in changed} - {"trials"} == {"A/alpha_A_1", "B/alpha_B_1"}
    assert read_outcomes(tmp_path / "raw")[Trial("B", 1)].reason == "another reason"


def test_a_sandbox_that_fails_for_one_trial_is_no_failure_of_the_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = PromptRunner.run_trial

    def run_trial(runner: PromptRunner, job: TrialJob, backend: Backend) -> TrialRun:
        if job.trial == Trial("A", 2):
            raise SandboxError("bwrap: no more processes")
        return real(runner, job, backend)

    monkeypatch.setattr(PromptRunner, "run_trial", run_trial)
    with pytest.raises(TrialFaultError, match=r"1 of 4 trials.*A2 \(bwrap"):
        run(tmp_path / "raw", Parrot())
    assert read_record(record_path(tmp_path / "raw", "alpha", Trial("A", 2))).cause == "machine"
    monkeypatch.undo()
    backend = Parrot()
    run(tmp_path / "raw", backend)
    assert len(backend.requests) == 1
    assert read_record(record_path(tmp_path / "raw", "alpha", Trial("A", 2))).reason is None
