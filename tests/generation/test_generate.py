"""The stage generate: one response a trial, the teams in turn, nothing asked twice, nothing stale kept."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from competition_folder import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder
from params_for_tests import file_states
from slow_ollama import DIGEST, SlowOllama
from soak import soak_only
from waiting import wait_until

from pcgeval.core.files import derived_seed
from pcgeval.core.layout import Trial
from pcgeval.core.params import Limits, Model
from pcgeval.generation.tasks import GenerationTask
from pcgeval.sandbox.sandbox import Sandbox, SandboxError
from pcgeval.submissions.load import Program, Submission
from pcgeval.submissions.packages import LOCK

NO_SANDBOX = {"PCGEVAL_NO_SANDBOX": "1"}
TRUST = {**NO_SANDBOX, "PCGEVAL_TRUST_PROGRAMS": "1"}
ENDLESS = {"main.py": PROGRAM["main.py"].replace("return answer", "while True: pass")}


@pytest.fixture
def asked() -> list[str]:
    """The last message of each request, in the order in which they came."""
    return []


@pytest.fixture
def server(asked: list[str]) -> Iterator[SlowOllama]:
    with SlowOllama(0.002, status=lambda text: asked.append(text) or 200) as served:
        yield served


@pytest.fixture
def prompt(tmp_path: Path, server: SlowOllama) -> CompetitionFolder:
    """A competition of the prompt `Build`, two letters and two trials."""
    competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
    competition.change_model(concurrency=1)
    return competition


@pytest.fixture
def three_teams(prompt: CompetitionFolder) -> CompetitionFolder:
    """The same with the prompts `Build`, `Stack` and `Pile`, which are asked one after the other."""
    prompt.add_team("beta", {"prompt.txt": "Stack the letter <OBJECT>."})
    prompt.add_team("gamma", {"prompt.txt": "Pile up the letter <OBJECT>."})
    return prompt


def program(folder: Path, server: SlowOllama, work: dict[str, str]) -> CompetitionFolder:
    """Lay out a competition of a program, one letter and two trials."""
    return competition_folder(folder, server.address, work, letters="A", trials=2)


def reasons(competition: CompetitionFolder, team: str = "alpha") -> list[str | None]:
    """Return why each trial failed, or None, in the order of the trials."""
    return [record.reason for record in competition.records(team)]


def test_a_trial_is_asked_once_with_its_own_seed_and_again_when_what_it_is_made_from_changes(
    prompt: CompetitionFolder, server: SlowOllama, asked: list[str]
) -> None:
    prompt.generate()
    assert asked == ["Build the letter A."] * 2 + ["Build the letter B."] * 2
    before, first = prompt.outputs(), prompt.records()[0]
    assert (first.model, first.digest, first.seed, first.tokens) == ("m:1", DIGEST, derived_seed(6280, "A", 1), 16)
    assert len({record.seed for record in prompt.records()}) == 4
    assert before["m/alpha/A/alpha_A_1.txt"].decode().startswith(f"answer {first.exchanges[0].key[:12]}")

    def change(text: str = PROMPT["prompt.txt"], seed: int = 6280, digest: str = DIGEST, temperature: float = 0.5):
        (prompt.folder / "data/submissions/alpha/prompt.txt").write_text(text)
        prompt.change_params("competition", seed=seed)
        prompt.change_model(digest=digest, options={"temperature": temperature}, concurrency=3)
        server.digest = digest
        asked.clear()
        prompt.generate()

    for values in ({"text": "Draw <OBJECT>"}, {"seed": 1}, {"digest": "cd" * 32}, {"temperature": 0.4}):
        change(**values)
        assert len(asked) == 4
    (prompt.folder / "data/raw/m/alpha/A/alpha_A_1.txt").write_text("a better answer, written by hand")
    (prompt.folder / "data/raw/m/alpha/B/alpha_B_2.json").write_text('{"fingerprint": ')
    change()
    assert (prompt.outputs(), asked) == (before, [])
    server.digest = "cd" * 32
    (prompt.folder / "data/raw/m/alpha/B/alpha_B_2.json").unlink()
    code, output = prompt.run_and_fail(*STAGE)
    assert (code, DIGEST in output, server.digest in output) == (2, True, True)


def test_other_limits_decide_anew_about_the_same_replies(prompt: CompetitionFolder, server: SlowOllama) -> None:
    server.seconds = 0.3
    prompt.generate()
    before = len(server.asked)
    for limits, reason in (
        ({"tokens": 15}, "used 16 tokens; the limit is 15"),
        ({"tokens": 16, "seconds": 0.1, "call_seconds": 9}, None),  # the call ended
        ({"seconds": 0.1, "call_seconds": 0.1}, "took more than 0.1 s and did not end in the 0.1 s for its last call"),
    ):
        prompt.change_params("limits", **limits)
        prompt.generate()
        assert set(reasons(prompt)) == {reason}
    assert len(server.asked) == before


def test_a_failed_call_is_an_empty_response_and_the_failure_of_its_trial_alone(
    prompt: CompetitionFolder, server: SlowOllama, asked: list[str]
) -> None:
    server.status = lambda text: asked.append(text) or (400 if "B" in text[-2] else 200)
    prompt.generate()
    records = prompt.records()
    assert [record.reason is None for record in records] == [True, True, False, False]
    assert prompt.outputs()["m/alpha/B/alpha_B_1.txt"] == b""
    prompt.generate()
    assert len(asked) == 4
    (prompt.folder / "data/raw/m/alpha/B/alpha_B_1.json").unlink()
    prompt.generate()
    assert asked[4:] == ["Build the letter B."]


# several teams


def test_the_teams_take_turns_and_what_is_finished_stays_as_it_is_without_the_server(
    three_teams: CompetitionFolder, server: SlowOllama, asked: list[str]
) -> None:
    three_teams.generate()
    turns = [(letter, verb) for letter in "AB" for verb in ("Build", "Stack", "Pile")]
    assert [(text[-2], text.split()[0]) for text in asked] == [turn for turn in turns for _ in range(2)]
    raw = three_teams.folder / "data/raw/m"
    before, whole = file_states(raw), three_teams.outputs()
    (raw / "beta/B/beta_B_2.json").unlink()
    three_teams.generate()
    assert (len(asked), three_teams.outputs()) == (12, whole)
    changed = {name for name, state in file_states(raw).items() if before[name] != state}
    assert changed == {"beta/B/beta_B_2.json"}  # the same response is not written again
    before = file_states(raw)
    server.__exit__()
    three_teams.generate()
    assert file_states(raw) == before


def test_what_no_trial_owns_is_removed_and_a_new_team_is_asked_alone(
    three_teams: CompetitionFolder, asked: list[str]
) -> None:
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
    left = {name for name in three_teams.outputs() if not name.startswith("m/delta")}
    assert left == {name for name in before if name.startswith(("m/alpha/A", "m/gamma/A"))}


def test_faults_of_several_teams_are_all_told_and_done_again_alone(
    three_teams: CompetitionFolder, server: SlowOllama, asked: list[str]
) -> None:
    server.status = lambda text: 500 if text in {"Build the letter B.", "Pile up the letter B."} else 200
    three_teams.change_params("limits", seconds=0.5, call_seconds=0)
    code, output = three_teams.run_and_fail(*STAGE)
    assert (code, "take alpha out of `teams`" in output) == (2, True)
    for team, faults in (("alpha", 1), ("beta", 0), ("gamma", 1)):
        message = f"{team} with m: 2 trials failed through no fault of the submission, such as B1 ("
        assert output.count(message) == faults
        assert len(three_teams.records(team)) == 4
    server.status = lambda text: asked.append(text) or 200
    asked.clear()
    three_teams.generate()
    assert asked == ["Build the letter B."] * 2 + ["Pile up the letter B."] * 2


# programs


def test_all_that_makes_a_trial_is_in_its_fingerprint_and_all_else_is_not(tmp_path: Path) -> None:
    limits, model = Limits(tokens=100, seconds=10, prompt_words=900), Model(backend="ollama", name="m:1")
    work = Program(tmp_path, "main.py")
    task = GenerationTask(Submission("alpha", work), model, DIGEST, limits, 6280)

    def fingerprint(**changes: object) -> str:
        return replace(task, **changes).fingerprint(Trial("A", 1))  # type: ignore[arg-type]

    before = fingerprint()
    others = [
        *(task.fingerprint(trial) for trial in (Trial("A", 2), Trial("B", 1))),
        *(fingerprint(**change) for change in ({"digest": "cd" * 32}, {"master_seed": 1})),
        fingerprint(model=model.model_copy(update={"options": {"top_k": 5}})),
        *(fingerprint(limits=limits.model_copy(update=change)) for change in ({"tokens": 99}, {"seconds": 9})),
        fingerprint(submission=Submission("alpha", replace(work, entry="other.py"))),
    ]
    elsewhere = Model(backend="ollama", name="m:1", host="http://other:1", concurrency=4)
    assert fingerprint(model=elsewhere, limits=limits.model_copy(update={"prompt_words": 1})) == before
    for name in ("submission.yaml", "main.pyc/__pycache__/main.cpython-311.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("2")
        assert fingerprint() == before
    for name in ("main.py", "new.py", LOCK):
        (tmp_path / name).write_text("2")
        others.append(fingerprint())
    assert len({before, *others}) == 1 + len(others)


def test_without_a_sandbox_no_program_runs_unless_programs_are_trusted(tmp_path: Path, server: SlowOllama) -> None:
    competition = program(tmp_path, server, PROGRAM)
    code, output = competition.run_and_fail(*STAGE, **NO_SANDBOX)
    assert (code, "PCGEVAL_TRUST_PROGRAMS=1" in output, server.asked) == (2, True, [])
    competition.run(*STAGE, **TRUST)
    assert [record.contained for record in competition.records()] == [False, False]
    before = len(server.asked)
    competition.run(*STAGE, **NO_SANDBOX)  # what is finished needs no sandbox
    assert len(server.asked) == before


@pytest.mark.needs_sandbox
def test_root_runs_a_program_that_only_its_owner_may_read(tmp_path: Path, server: SlowOllama) -> None:
    competition = program(tmp_path, server, PROGRAM)
    (tmp_path / "data/submissions/alpha").chmod(0o700)
    umask = os.umask(0o077)
    try:
        competition.generate()
    finally:
        os.umask(umask)
    assert reasons(competition) == [None, None]


def test_a_sandbox_that_fails_for_one_trial_is_no_failure_of_the_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: SlowOllama
) -> None:
    competition = program(tmp_path, server, PROGRAM)
    competition.change_model(concurrency=1)
    started = Sandbox.start
    faults = iter(["bwrap: no more processes"])

    def start(sandbox: Sandbox, command: list[str], **values: Any) -> Any:
        if command[-1] == "main.py" and (fault := next(faults, None)):
            raise SandboxError(fault)
        return started(sandbox, command, **values)

    monkeypatch.setattr(Sandbox, "start", start)
    code, output = competition.run_and_fail(*STAGE, **TRUST)
    assert code == 2
    assert "alpha with m: 1 trial failed" in output
    assert "A1 (bwrap: no more processes)" in output
    assert [record.cause for record in competition.records()] == ["machine", None]
    competition.run(*STAGE, **TRUST)
    assert (reasons(competition), len(server.asked)) == ([None, None], 2 * 3)


@pytest.mark.parametrize(
    ("environment", "how"),
    [
        pytest.param(TRUST, signal.SIGINT, id="trusted, Ctrl-C"),
        pytest.param({}, signal.SIGTERM, id="contained, SIGTERM", marks=pytest.mark.needs_sandbox),
        pytest.param(TRUST, signal.SIGTERM, id="trusted, SIGTERM", marks=soak_only),
        pytest.param({}, signal.SIGINT, id="contained, Ctrl-C", marks=[pytest.mark.needs_sandbox, soak_only]),
    ],
)
def test_an_interruption_ends_the_programs_and_fails_no_trial(
    tmp_path: Path, server: SlowOllama, how: signal.Signals, environment: dict[str, str]
) -> None:
    competition = program(tmp_path, server, ENDLESS)
    process = competition.command(*STAGE, **environment)
    wait_until(lambda: len(competition.finished_calls()) >= 2 * 3, process)
    started = psutil.Process(process.pid).children(recursive=True)
    assert started
    process.send_signal(how)
    _, output = process.communicate(timeout=300)
    assert (process.returncode, output.startswith("stopped"), output.count("\n")) == (130, True, 1)
    assert not [program for program in started if program.is_running()]
    assert not competition.records()
    assert len(competition.finished_calls()) == 2 * 3
