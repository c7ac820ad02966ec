"""The generate step with programs: what a trial is made from, and what happens without a sandbox or with no end."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from competition_folder import PROGRAM, STAGE, CompetitionFolder, competition_folder
from slow_ollama import DIGEST, SlowOllama
from soak import soak_only
from waiting import wait_until
from wheels_for_tests import write_wheel

from pcgeval.core.layout import Trial
from pcgeval.core.params import Limits, Model
from pcgeval.core.trials import read_record
from pcgeval.generation.tasks import GenerationTask
from pcgeval.submissions.load import Program, Submission
from pcgeval.submissions.requirements import LOCK

TRIAL = Trial("A", 1)
SMALL = {"letters": "A", "trials": 2}
NO_SANDBOX = {"PCGEVAL_NO_SANDBOX": "1"}
TRUST = {**NO_SANDBOX, "PCGEVAL_TRUST_PROGRAMS": "1"}
ENDLESS = {
    "main.py": PROGRAM["main.py"].replace("return answer", "while True: pass"),
}


@pytest.fixture
def task(tmp_path: Path) -> GenerationTask:
    folder = tmp_path / "alpha"
    (folder / "prompts").mkdir(parents=True)
    for name in ("main.py", "prompts/build.txt", "submission.yaml"):
        (folder / name).write_text("1")
    limits = Limits(tokens=100, seconds=10, prompt_words=900)
    submission = Submission("alpha", Program(folder, "main.py"))
    return GenerationTask(submission, Model(backend="ollama", name="m:1"), DIGEST, limits, 6280)


def edited(task: GenerationTask, name: str, text: str = "2") -> GenerationTask:
    assert isinstance(task.submission.work, Program)
    path = task.submission.work.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return replace(task)


def test_all_that_makes_a_trial_is_in_its_fingerprint(task: GenerationTask):
    before = task.fingerprint(TRIAL)
    assert replace(task).fingerprint(TRIAL) == before
    others = [
        replace(task, digest="cd" * 32),
        replace(task, master_seed=1),
        replace(task, model=Model(backend="ollama", name="m:2")),
        replace(task, model=Model(backend="ollama", name="m:1", options={"num_predict": 5})),
        replace(task, limits=task.limits.model_copy(update={"tokens": 99})),
        replace(task, limits=task.limits.model_copy(update={"seconds": 9})),
        replace(task, submission=replace(task.submission, work=Program(task.submission.work.folder, "other.py"))),  # type: ignore[union-attr]
    ]
    prints = {before, task.fingerprint(Trial("A", 2)), task.fingerprint(Trial("B", 1))}
    prints |= {other.fingerprint(TRIAL) for other in others}
    prints |= {edited(task, name).fingerprint(TRIAL) for name in ("main.py", "prompts/build.txt", "new.py", LOCK)}
    assert len(prints) == 3 + len(others) + 4


@pytest.mark.parametrize("name", ["submission.yaml", "__pycache__/main.cpython-311.pyc"])
def test_what_the_program_does_not_consist_of_is_no_reason_to_run_it_again(task: GenerationTask, name: str):
    assert edited(task, name).fingerprint(TRIAL) == task.fingerprint(TRIAL)


def test_where_a_model_runs_and_how_long_a_prompt_may_be_is_not_in_it(task: GenerationTask):
    elsewhere = replace(task, model=Model(backend="ollama", name="m:1", host="http://other:1", concurrency=4))
    shorter = replace(task, limits=task.limits.model_copy(update={"prompt_words": 1}))
    assert elsewhere.fingerprint(TRIAL) == shorter.fingerprint(TRIAL) == task.fingerprint(TRIAL)


def records(competition: CompetitionFolder) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(competition.folder.glob("data/raw/m/alpha/A/*.json"))]


@pytest.mark.needs_sandbox
def test_every_exchange_of_a_program_is_recorded_with_its_messages(tmp_path: Path):
    with SlowOllama(0.002) as server:
        competition = competition_folder(tmp_path, server.address, PROGRAM, **SMALL)  # type: ignore[arg-type]
        competition.generate()
    record = read_record(tmp_path / "data/raw/m/alpha/A/alpha_A_1.json")
    assert record.reason is None
    assert [(exchange.repeats, len(exchange.messages or ())) for exchange in record.exchanges] == [
        (0, 1),
        (2, 1),
        (4, 1),
    ]
    assert record.tokens == 3 * 16
    response = (tmp_path / "data/raw/m/alpha/A/alpha_A_1.txt").read_text()
    assert response == record.exchanges[-1].reply.text
    assert {exchange.key for exchange in record.exchanges} <= set(server.asked)


def test_without_a_sandbox_nothing_runs_unless_programs_are_trusted(tmp_path: Path):
    with SlowOllama(0.002) as server:
        competition = competition_folder(tmp_path, server.address, PROGRAM, **SMALL)  # type: ignore[arg-type]
        code, said = competition.run_and_fail(*STAGE, **NO_SANDBOX)
        assert code == 2
        assert "PCGEVAL_TRUST_PROGRAMS=1" in said
        assert not server.asked
        competition.run(*STAGE, **TRUST)
        assert [record.get("contained") for record in records(competition)] == [False, False]
        before = len(server.asked)
        competition.run(*STAGE, **NO_SANDBOX)  # what is finished needs no sandbox
        assert len(server.asked) == before


def test_the_versions_of_its_packages_belong_to_a_trial(tmp_path: Path):
    index = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path), **TRUST}
    with SlowOllama(0.002) as server:
        work = {"main.py": "import example\n" + PROGRAM["main.py"], "requirements.txt": "example\n"}
        competition = competition_folder(tmp_path / "c", server.address, work, **SMALL)  # type: ignore[arg-type]

        def generate(machine: str) -> None:
            competition.run(*STAGE, PCGEVAL_CACHE=str(tmp_path / machine), **index)

        write_wheel(tmp_path, {"example.py": ""})
        generate("first")
        assert [record["reason"] for record in records(competition)] == [None, None]
        before, asked = competition.outputs(), len(server.asked)
        write_wheel(tmp_path, {"example.py": ""}, version="2.0")
        generate("second")  # which has the lock
        assert competition.outputs() == before
        (competition.folder / "data/submissions/alpha" / LOCK).unlink()
        generate("third")
        made = [record["fingerprint"] for record in records(competition)]
        assert competition.outputs().keys() == before.keys()
        assert not any(str(fingerprint).encode() in b"".join(before.values()) for fingerprint in made)
    assert len(server.asked) == asked  # the call log knows all replies


def test_packages_that_no_index_has_are_the_programs_fault(tmp_path: Path):
    index = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path), "PCGEVAL_CACHE": str(tmp_path / "cache"), **TRUST}
    with SlowOllama(0.002) as server:
        work = {**PROGRAM, "requirements.txt": "no-such-package\n"}
        competition = competition_folder(tmp_path / "c", server.address, work, **SMALL)  # type: ignore[arg-type]
        competition.run(*STAGE, **index)
        assert not server.asked
    reasons = [read_record(path).reason for path in competition.folder.glob("data/raw/m/alpha/A/*.json")]
    assert len(reasons) == 2
    assert all(reason and "no-such-package" in reason for reason in reasons)


def test_an_unreachable_index_stops_the_stage_and_decides_nothing(tmp_path: Path):
    index = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0", "UV_OFFLINE": "0"}
    with SlowOllama(0.002) as server:
        work = {**PROGRAM, "requirements.txt": "example\n"}
        competition = competition_folder(tmp_path / "c", server.address, work, **SMALL)  # type: ignore[arg-type]
        code, said = competition.run_and_fail(*STAGE, PCGEVAL_CACHE=str(tmp_path / "cache"), **index, **TRUST)
        assert code == 2
        assert "cannot be reached" in said
        assert not server.asked
    assert not list(competition.folder.glob("data/raw/m/alpha/A/*.json"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
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
    tmp_path: Path, how: signal.Signals, environment: dict[str, str]
):
    with SlowOllama(0.002) as server:
        competition = competition_folder(tmp_path, server.address, ENDLESS, **SMALL)  # type: ignore[arg-type]
        process = competition.command(*STAGE, **environment)
        wait_until(lambda: len(competition.finished_calls()) >= 2 * 3, process)
        started = descendants(process.pid)
        assert started
        process.send_signal(how)
        _, said = process.communicate(timeout=300)
        assert process.returncode == 130
        assert said.startswith("stopped")
        assert said.count("\n") == 1
        assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    assert not records(competition)
    assert len(competition.finished_calls()) == 2 * 3


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
        if os.path.exists(f"/proc/{child}")  # noqa: PTH110 - a path that vanishes is no error
    ]
    return children + [descendant for child in children for descendant in descendants(child)]
