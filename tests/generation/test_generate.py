"""The stage generate: one response a trial, the teams in turn, nothing asked twice, nothing stale kept."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from competition_folder import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama

from pcgeval.core.layout import Trial, trial_file, trials
from pcgeval.core.params import parse_params
from pcgeval.core.trials import TrialRecord, read_record, record_path
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.llm.call_log import LoggedCall, trial_calls, write_recording
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError
from pcgeval.llm.recorded import RecordedModel
from pcgeval.sandbox.sandbox import Sandbox, SandboxError
from pcgeval.submissions.load import Prompt, Submission

DIGEST = "ab" * 32
MODEL: dict[str, Any] = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "options": {"num_predict": 9}}
COMPETITION = {"name": "test", "edition": "1", "characters": "AB", "trials": 2, "seed": 6280}
VALUES: dict[str, Any] = {
    "competition": COMPETITION,
    "teams": ["alpha"],
    "models": {"m": MODEL},
    "limits": {"tokens": 100, "seconds": 50, "prompt_words": 900},
    **{section: {} for section in ("physics", "similarity", "diversity", "scoring", "rubric")},
}
TRIALS = list(trials(parse_params(VALUES, "params.yaml")))
USUAL = ChatReply("", prompt_tokens=5, output_tokens=5, done_reason="stop", seconds=1.0)


@dataclass
class Parrot:
    """A backend that answers with what it was asked, and remembers each text."""

    served: str = DIGEST
    asked: list[str] = field(default_factory=list)
    seeds: list[object] = field(default_factory=list)
    fail_on: str | None = None
    stop_after: int | None = None
    reply: ChatReply = USUAL

    def digest(self) -> str:
        return self.served

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002
        if len(self.asked) == self.stop_after:
            raise LlmError("the server went away")
        text = request.messages[0].content
        self.asked.append(text)
        self.seeds.append(request.options["seed"])
        if self.fail_on and self.fail_on in text:
            raise CallError("the prompt is too \ud800 long")
        return replace(self.reply, text=f"{text}{self.reply.text}")


def run(folder: Path, backend: Parrot | RecordedModel, prompt: str = "Draw <OBJECT>", **changes: Any) -> None:
    params = parse_params({**VALUES, **changes}, "params.yaml")
    team = TeamTrials(Submission("alpha", Prompt(prompt)), backend, folder)
    calls = folder.with_name(f"{folder.name}-calls")
    do_trials(params, "m", [team], lambda *_: None, state=folder.with_name("state"), calls=calls)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def record(folder: Path, trial: Trial) -> TrialRecord:
    return read_record(record_path(folder, "alpha", trial))


def reasons(folder: Path) -> list[str | None]:
    """Return why each trial failed, or None, in the order of the trials."""
    return [record(folder, trial).reason for trial in TRIALS]


def test_every_trial_is_asked_once_with_its_own_seed_also_by_a_run_that_was_stopped(tmp_path: Path):
    stopped = Parrot(stop_after=3, fail_on="B")
    with pytest.raises(LlmError):
        run(tmp_path / "a", stopped)
    resumed = Parrot(fail_on="B")
    run(tmp_path / "a", resumed)
    assert stopped.asked + resumed.asked == ["Draw A", "Draw A", "Draw B", "Draw B"]
    assert len({*stopped.seeds, *resumed.seeds}) == 4
    assert trial_file(tmp_path / "a", "raw", "alpha", Trial("A", 2)).read_text() == "Draw A"
    first = record(tmp_path / "a", TRIALS[0])
    assert (first.model, first.digest, first.seed, first.tokens) == ("m:1", DIGEST, stopped.seeds[0], 10)
    run(tmp_path / "b", Parrot(fail_on="B"), models={"m": {**MODEL, "concurrency": 3}})
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "Build <OBJECT>"},
        {"competition": {**COMPETITION, "seed": 1}},
        {"models": {"m": {**MODEL, "options": {"num_predict": 8}}}},
        {"models": {"m": {**MODEL, "name": "m:2"}}},
    ],
)
def test_a_trial_made_from_something_else_is_asked_again_and_what_was_is_not_forgotten(
    tmp_path: Path, change: dict[str, Any]
):
    run(tmp_path, Parrot())
    before = files(tmp_path)
    again = Parrot()
    run(tmp_path, again, **change)
    assert len(again.asked) == 4
    run(tmp_path, again)
    assert len(again.asked) == 4
    assert files(tmp_path) == before


def test_another_limit_decides_anew_about_the_same_replies(tmp_path: Path):
    run(tmp_path, Parrot(reply=replace(USUAL, seconds=3.0)))
    again = Parrot()
    run(tmp_path, again, limits={"tokens": 9, "seconds": 50, "prompt_words": 900})
    assert set(reasons(tmp_path)) == {"used 10 tokens; the limit is 9"}
    run(tmp_path, again, limits={"tokens": 10, "seconds": 2, "prompt_words": 900})
    assert set(reasons(tmp_path)) == {None}  # the call ended
    run(tmp_path, again, limits={"tokens": 99, "seconds": 2, "call_seconds": 0.5, "prompt_words": 900})
    assert all("took more than 2 s" in str(reason) for reason in reasons(tmp_path))
    assert not again.asked


def test_a_damaged_trial_is_made_again_without_a_call(tmp_path: Path):
    run(tmp_path, Parrot())
    before = files(tmp_path)
    trial_file(tmp_path, "raw", "alpha", Trial("A", 1)).write_text("a better answer, written by hand")
    record_path(tmp_path, "alpha", Trial("B", 1)).write_text('{"fingerprint": ')
    again = Parrot()
    run(tmp_path, again)
    assert not again.asked
    assert files(tmp_path) == before


def test_a_failed_call_is_an_empty_response_and_the_failure_of_its_trial_alone(tmp_path: Path):
    run(tmp_path, Parrot(fail_on="B"))
    assert reasons(tmp_path) == [None, None, *["the prompt is too \ufffd long"] * 2]
    assert trial_file(tmp_path, "raw", "alpha", Trial("B", 1)).read_bytes() == b""
    (failure,) = record(tmp_path, Trial("B", 1)).failures
    assert (failure.turn, failure.reason) == (1, "the prompt is too \ufffd long")
    again = Parrot()
    run(tmp_path, again)
    assert not again.asked
    record_path(tmp_path, "alpha", Trial("B", 1)).unlink()
    run(tmp_path, again)
    assert again.asked == ["Draw B"]


def test_another_digest_stops_the_run_and_both_are_named(tmp_path: Path):
    with pytest.raises(LlmError, match=rf"{DIGEST}.*{'cd' * 32}"):
        run(tmp_path, Parrot(served="cd" * 32))


def test_what_no_file_can_hold_is_kept_as_it_can_be_and_not_asked_again(tmp_path: Path):
    run(tmp_path, Parrot(reply=replace(USUAL, text="a \ud800 b")), prompt="Draw \ud800 <OBJECT>")
    assert trial_file(tmp_path, "raw", "alpha", TRIALS[0]).read_text() == "Draw \ufffd Aa \ufffd b"
    again = Parrot()
    run(tmp_path, again, prompt="Draw \ud800 <OBJECT>")
    assert not again.asked


@pytest.mark.parametrize("change", [{"text": "Another reply"}, {"output_tokens": 96}, {"seconds": 651.0}])
def test_an_edited_recording_wins_over_a_finished_trial(tmp_path: Path, change: dict[str, Any]):
    raw, recording = tmp_path / "raw", tmp_path / "recording.jsonl"

    def replay(folder: Path, calls: list[LoggedCall]) -> None:
        write_recording(recording, calls)
        run(folder, RecordedModel.read(recording, DIGEST), models={"m": {**MODEL, "backend": "recorded"}})

    run(raw, Parrot(fail_on="B"))
    calls = [call for trial in TRIALS for call in trial_calls(trial, record(raw, trial))]
    before = files(raw)
    replay(raw, calls)
    assert files(raw) == before
    assert calls[0].reply
    calls[0] = calls[0].model_copy(update={"reply": replace(calls[0].reply, **change)})
    calls[2] = calls[2].model_copy(update={"reason": "another reason"})
    replay(raw, calls)
    replay(tmp_path / "afresh", calls)
    assert files(raw) == files(tmp_path / "afresh") != before
    changed = {name for name, content in files(raw).items() if before[name] != content}
    assert {name.split(".")[0] for name in changed} == {"A/alpha_A_1", "B/alpha_B_1"}
    assert reasons(raw)[2] == "another reason"


def test_a_sandbox_that_fails_for_one_trial_is_no_failure_of_the_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: SlowOllama
):
    competition = competition_folder(tmp_path, server.address, PROGRAM, letters="A", trials=2)
    competition.change_model(concurrency=1)
    started = Sandbox.start
    faults = iter(["bwrap: no more processes"])

    def start(sandbox: Sandbox, command: list[str], **values: Any) -> Any:
        if command[-1] == "main.py" and (fault := next(faults, None)):
            raise SandboxError(fault)
        return started(sandbox, command, **values)

    monkeypatch.setattr(Sandbox, "start", start)
    code, said = competition.run_and_fail(*STAGE, PCGEVAL_TRUST_PROGRAMS="1")
    assert code == 2
    assert "alpha with m: 1 trials failed" in said
    assert "A1 (bwrap: no more processes)" in said
    assert [record.cause for record in competition.records()] == ["machine", None]
    competition.run(*STAGE, PCGEVAL_TRUST_PROGRAMS="1")
    assert [record.reason for record in competition.records()] == [None, None]
    assert len(server.asked) == 2 * 3


@pytest.fixture
def asked() -> list[str]:
    """The last message of each request, in the order in which they came."""
    return []


@pytest.fixture
def server(asked: list[str]) -> Iterator[SlowOllama]:
    with SlowOllama(0.002, status=lambda text: asked.append(text) or 200) as served:
        yield served


@pytest.fixture
def three_teams(tmp_path: Path, server: SlowOllama) -> CompetitionFolder:
    """A competition of the prompts `Build`, `Stack` and `Pile`, which are asked one after the other."""
    competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
    competition.change_model(concurrency=1)
    competition.add_team("beta", {"prompt.txt": "Stack the letter <OBJECT>."})
    competition.add_team("gamma", {"prompt.txt": "Pile up the letter <OBJECT>."})
    return competition


def test_the_teams_take_turns_letter_by_letter(three_teams: CompetitionFolder, asked: list[str]):
    three_teams.generate()
    turns = [(letter, verb) for letter in "AB" for verb in ("Build", "Stack", "Pile")]
    assert [(text[-2], text.split()[0]) for text in asked] == [turn for turn in turns for _ in range(2)]


def test_what_is_finished_stays_as_it_is_without_the_server(three_teams: CompetitionFolder, server: SlowOllama):
    def written() -> dict[str, int]:
        raw = three_teams.folder / "data/raw"
        return {path.relative_to(raw).as_posix(): path.stat().st_mtime_ns for path in raw.rglob("*.*")}

    three_teams.generate()
    before, whole = written(), three_teams.outputs()
    (three_teams.folder / "data/raw/m/beta/B/beta_B_2.json").unlink()
    three_teams.generate()
    assert len(server.asked) == 12
    assert three_teams.outputs() == whole
    changed = {name for name, moment in written().items() if before[name] != moment}
    assert changed == {"m/beta/B/beta_B_2.json"}  # the same response is not written again
    before = written()
    server.__exit__()
    three_teams.generate()
    assert written() == before


def test_what_no_trial_owns_is_removed_and_a_new_team_is_asked_alone(three_teams: CompetitionFolder, asked: list[str]):
    three_teams.generate()
    before, raw = three_teams.outputs(), three_teams.folder / "data/raw/m"
    for stray in ("alpha/Z/alpha_Z_1.txt", "alpha/A/alpha_A_3.txt", "alpha/note.md", "delta/A/delta_A_1.txt", "x"):
        (raw / stray).parent.mkdir(parents=True, exist_ok=True)
        (raw / stray).write_text("stray")
    three_teams.generate()
    assert three_teams.outputs() == before
    assert sorted(path.name for path in raw.iterdir()) == ["alpha", "beta", "gamma"]
    three_teams.remove_team("beta")
    three_teams.change_params("competition", characters="A")
    three_teams.add_team("delta", {"prompt.txt": "Draw the letter <OBJECT>."})
    asked.clear()
    three_teams.generate()
    assert asked == ["Draw the letter A."] * 2
    left = {name: content for name, content in three_teams.outputs().items() if not name.startswith("m/delta")}
    assert left == {name: before[name] for name in before if name.startswith(("m/alpha/A", "m/gamma/A"))}


def test_a_program_that_cannot_run_here_and_a_server_that_fails_hide_nothing(
    three_teams: CompetitionFolder, server: SlowOllama
):
    """Two faults of a team and one of the next are three in a row; without them, the program stops no other team."""
    server.status = lambda text: 200 if text == "Build the letter A." else 500
    three_teams.add_team("delta", PROGRAM)
    three_teams.change_params("limits", seconds=0.5, call_seconds=0)
    code, said = three_teams.run_and_fail(*STAGE, PCGEVAL_NO_SANDBOX="1")
    assert code == 2
    for words in ("The sandbox is switched off", "gamma with m: 3 trials one after the other", "CUDA out of memory"):
        assert words in said
    assert [len(three_teams.records(team)) for team in ("alpha", "beta", "gamma", "delta")] == [2, 2, 1, 0]
    server.status = lambda _: 200
    code, said = three_teams.run_and_fail(*STAGE, PCGEVAL_NO_SANDBOX="1")
    assert code == 2
    assert "trials one after the other" not in said
    records = [three_teams.records(team) for team in ("alpha", "beta", "gamma", "delta")]
    assert [[record.reason for record in of_team] for of_team in records] == [[None] * 4] * 3 + [[]]


def test_faults_of_several_teams_are_all_told_and_done_again_alone(
    three_teams: CompetitionFolder, server: SlowOllama, asked: list[str]
):
    server.status = lambda text: 500 if text in {"Build the letter B.", "Pile up the letter B."} else 200
    three_teams.change_params("limits", seconds=0.5, call_seconds=0)
    code, said = three_teams.run_and_fail(*STAGE)
    assert code == 2
    assert "take alpha out of `teams`" in said
    for team, faults in (("alpha", 1), ("beta", 0), ("gamma", 1)):
        assert said.count(f"{team} with m: 2 trials failed through no fault of the submission: B1 (") == faults
        assert len(three_teams.records(team)) == 4
    server.status = lambda text: asked.append(text) or 200
    three_teams.generate()
    assert asked == ["Build the letter B."] * 2 + ["Pile up the letter B."] * 2
