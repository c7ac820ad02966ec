"""Kept trials are compared with the replies that were recorded or logged, whatever their records' hashes say."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from workspace import make_workspace

from pcgeval.audit.recompute import Recomputation, recompute
from pcgeval.core.files import sha256_bytes, write_json
from pcgeval.core.layout import CALLS, Trial, recorded_trials_file, recording_file, stage_dir, trials
from pcgeval.core.params import load_params
from pcgeval.core.stage_files import write_outcomes
from pcgeval.core.trials import (
    ChatReply,
    Exchange,
    Message,
    RecordedTrial,
    TrialRecord,
    read_record,
    record_path,
    recorded_line,
    write_trial,
)
from pcgeval.generation.generate import generate_stage, outcome_of
from pcgeval.generation.tasks import GenerationTask
from pcgeval.llm.backends import open_backend
from pcgeval.llm.call_log import LoggedCall, read_recording, write_recording
from pcgeval.submissions.load import load_submission

RAW = stage_dir("raw", "small", "alpha")
FIRST = Trial("I", 1)
SECOND = "Once more, please."


def again(folder: Path) -> Recomputation:
    return recompute(folder, load_params(folder / "params.yaml"), sample=0)


@pytest.fixture(scope="module")
def competition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trials of team alpha, a prompt, with the model small."""
    workspace = make_workspace(tmp_path_factory.mktemp("competition"))
    workspace.change_params("teams", value=["alpha"])
    workspace.change_params("scoring", "baseline", value=None)
    workspace.change_params("models", value={"small": load_values(workspace.folder)["models"]["small"]})
    params = load_params(workspace.folder / "params.yaml")
    generate_stage(
        params,
        "small",
        load_submission(workspace.folder / "data/submissions/alpha"),
        open_backend(params.models["small"], workspace.folder / recording_file("small", "alpha")),
        workspace.folder / RAW,
        lambda *_: None,
        state=workspace.folder / ".pcgeval",
    )
    return workspace.folder


def load_values(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = load_params(folder / "params.yaml").model_dump(mode="json", exclude_defaults=True)
    return values


@pytest.fixture
def folder(competition: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(competition, tmp_path / "copy", ignore=shutil.ignore_patterns("src", ".pcgeval")))


@pytest.fixture
def asked(folder: Path) -> Path:
    """The same trials, as if a server had been asked: the replies lie in the call log."""
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace("backend: recorded", "backend: ollama"))
    (folder / CALLS).mkdir(parents=True)
    shutil.move(folder / recording_file("small", "alpha"), folder / CALLS / "one.jsonl")
    return folder


def rewrite(path: Path, **changes: Any) -> None:
    value = json.loads(path.read_text())
    value.update(changes)
    write_json(path, value)


def forge(folder: Path, text: str = "```\ndrop_block('b31', 9)\n```") -> Path:
    """Give the first trial another reply and response, with the hash of it."""
    path = record_path(folder / RAW, "alpha", FIRST)
    path.with_suffix(".txt").write_text(text)
    (exchange,) = json.loads(path.read_text())["exchanges"]
    exchange["reply"]["text"] = text
    rewrite(path, exchanges=[exchange], response_sha256=sha256_bytes(text.encode()))
    return path.relative_to(folder)


def test_replies_that_were_asked_for_are_compared_with_the_call_log(asked: Path) -> None:
    found = again(asked)
    assert (found.differences, found.faults, found.recomputed.replies) == ((), (), 4)
    before = json.loads(record_path(asked / RAW, "alpha", FIRST).read_text())
    path = forge(asked)
    named = {(each.path, each.place): each for each in again(asked).differences}
    assert named[path.as_posix(), "response_sha256"].recomputed == repr(before["response_sha256"])
    assert (path.with_suffix(".txt").as_posix(), "line 1") in named


def test_a_reply_of_another_trial_is_found_in_either_way(folder: Path) -> None:
    other = json.loads(record_path(folder / RAW, "alpha", Trial("I", 2)).read_text())["exchanges"]
    path = record_path(folder / RAW, "alpha", FIRST)
    rewrite(path, exchanges=other, response_sha256=sha256_bytes(other[0]["reply"]["text"].encode()))
    path.with_suffix(".txt").write_text(other[0]["reply"]["text"])
    assert any(each.place == "exchanges[0].key" for each in again(folder).differences)


def test_a_forged_failure_is_found(folder: Path) -> None:
    path = record_path(folder / RAW, "alpha", FIRST)
    path.with_suffix(".txt").write_text("")
    rewrite(path, reason="took too long", response_sha256=sha256_bytes(b""))
    outcomes = folder / RAW / "trials.json"
    value = json.loads(outcomes.read_text())
    value[0].update(failed_step="generate", reason="took too long")
    write_json(outcomes, value)
    places = {(each.path.rpartition("/")[2], each.place) for each in again(folder).differences}
    assert {("alpha_I_1.json", "reason"), ("trials.json", "[I 1].reason")} <= places


@pytest.mark.parametrize("how", ["none", "part"])
def test_replies_that_are_not_in_the_call_log_are_noted_and_their_records_compared(asked: Path, how: str) -> None:
    log = asked / CALLS / "one.jsonl"
    calls = list(read_recording(log))
    own = record_path(asked / RAW, "alpha", FIRST)
    key = read_record(own).exchanges[0].key
    if how == "none":
        shutil.rmtree(log.parent)
    else:
        write_recording(log, [call for call in calls if call.key != key])
    found = again(asked)
    assert (found.differences, found.faults) == ((), ())
    assert any(note.startswith(f"{4 if how == 'none' else 1} trials") and "call log" in note for note in found.notes)
    own.with_suffix(".txt").write_text("another response")
    assert any("response_sha256" in str(each) for each in again(asked).differences)


def test_of_merged_logs_any_reply_that_was_given_counts(asked: Path) -> None:
    log = asked / CALLS / "one.jsonl"
    others = [
        call.model_copy(update={"reply": ChatReply("of another machine", 1, 2, "stop", 0.1)})
        for call in read_recording(log)
    ]
    write_recording(log.with_name("0-first.jsonl"), others)
    (asked / CALLS / "torn.jsonl").write_text('{"key": "')
    assert again(asked).differences == ()
    forge(asked, "of another machine")
    assert again(asked).differences != ()  # the tokens are not those of that reply
    forge(asked)
    assert again(asked).differences != ()


def test_a_recording_that_lacks_a_reply_is_a_fault(folder: Path) -> None:
    recording = folder / recording_file("small", "alpha")
    write_recording(recording, list(read_recording(recording))[1:])
    (fault,) = again(folder).faults
    assert "no reply" in fault
    assert "small" in fault
    recording.unlink()
    assert "no such recording" in again(folder).faults[0]


def write_program(folder: Path) -> None:
    """Replace the prompt by a program that asks twice, with its recorded trials."""
    submission = folder / "data/submissions/alpha"
    (submission / "prompt.txt").unlink()
    (submission / "main.py").write_text("from llms4pcg.competition import run_evaluation\nrun_evaluation('alpha', 1)\n")
    params, loaded = load_params(folder / "params.yaml"), load_submission(submission)
    model = params.models["small"]
    assert model.digest
    task = GenerationTask(loaded, model, model.digest, params.limits, params.competition.seed)
    shutil.rmtree(folder / RAW)
    calls, lines, outcomes = [], [], []
    for trial in trials(params):
        first = Message("user", f"Build {trial.letter}.")
        replies = [ChatReply(f"reply {turn} of {trial.letter}{trial.number}", 5, 5, "stop", 0.5) for turn in (1, 2)]
        talk = (first, Message("assistant", replies[0].text), Message("user", SECOND))
        keys = [task.job(trial).request(first).key, task.job(trial).request(*talk).key]
        exchanges = (Exchange(keys[0], replies[0], (first,), 0), Exchange(keys[1], replies[1], talk[2:], 2))
        response = "```\ndrop_block('b31', 9)\n```"
        record = TrialRecord(
            task.fingerprint(trial),
            task.job(trial).seed,
            model.name,
            model.digest,
            exchanges,
            sha256_bytes(response.encode()),
            None,
        )
        write_trial(folder / RAW, "alpha", trial, response, record)
        calls += [LoggedCall(key=key, reply=reply) for key, reply in zip(keys, replies, strict=True)]
        lines.append(recorded_line(RecordedTrial(trial.letter, trial.number, response, record)))
        outcomes.append(outcome_of(trial, record))
    write_outcomes(folder / RAW, outcomes)
    write_recording(folder / recording_file("small", "alpha"), calls)
    (folder / recorded_trials_file("small", "alpha")).write_text("".join(lines))


def test_a_program_s_trials_are_those_of_its_recording(folder: Path) -> None:
    write_program(folder)
    found = again(folder)
    assert (found.differences, found.faults, found.recomputed.replies) == ((), (), 8)
    assert not any("program" in note for note in found.notes)
    path = record_path(folder / RAW, "alpha", FIRST)
    path.with_suffix(".txt").write_text("better")
    rewrite(path, response_sha256=sha256_bytes(b"better"))
    assert {each.place for each in again(folder).differences} == {"response_sha256", "line 1", "line 2", "line 3"}


def test_a_program_without_recorded_trials_is_compared_by_its_calls(folder: Path) -> None:
    write_program(folder)
    (folder / recorded_trials_file("small", "alpha")).unlink()
    found = again(folder)
    assert (found.differences, found.faults, found.recomputed.replies) == ((), (), 8)
    assert any("4 trials of programs" in note for note in found.notes)
    path = record_path(folder / RAW, "alpha", FIRST)
    exchanges = json.loads(path.read_text())["exchanges"]
    exchanges[1]["reply"]["text"] = "another"
    rewrite(path, exchanges=exchanges)
    (difference,) = again(folder).differences
    assert (difference.place, difference.found, difference.recomputed) == (
        "exchanges[1].reply.text",
        "'another'",
        "'reply 2 of I1'",
    )
    exchanges[1]["reply"]["text"] = "reply 2 of I1"
    exchanges[1]["messages"][0]["content"] = "Say something else."
    rewrite(path, exchanges=exchanges)
    assert "exchanges[1].key" in {each.place for each in again(folder).differences}
