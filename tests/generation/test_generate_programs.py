"""The stage generate with programs: what a trial is made from, and what happens without a sandbox or with no end."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from competition_folder import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder
from slow_ollama import DIGEST, SlowOllama
from soak import soak_only
from waiting import wait_until
from wheels_for_tests import write_wheel

from pcgeval.core.layout import Trial
from pcgeval.core.params import Limits, Model
from pcgeval.generation.tasks import GenerationTask
from pcgeval.submissions.load import Program, Submission
from pcgeval.submissions.packages import LOCK

TRIAL = Trial("A", 1)
NO_SANDBOX = {"PCGEVAL_NO_SANDBOX": "1"}
TRUST = {**NO_SANDBOX, "PCGEVAL_TRUST_PROGRAMS": "1"}
ENDLESS = {"main.py": PROGRAM["main.py"].replace("return answer", "while True: pass")}


def small(folder: Path, server: SlowOllama, work: dict[str, str]) -> CompetitionFolder:
    """Lay out a competition of two trials."""
    return competition_folder(folder, server.address, work, letters="A", trials=2)


def test_all_that_makes_a_trial_is_in_its_fingerprint_and_all_else_is_not(tmp_path: Path):
    (tmp_path / "prompts").mkdir()
    for name in ("main.py", "prompts/build.txt", "submission.yaml"):
        (tmp_path / name).write_text("1")
    limits, model = Limits(tokens=100, seconds=10, prompt_words=900), Model(backend="ollama", name="m:1")
    program = Program(tmp_path, "main.py")
    task = GenerationTask(Submission("alpha", program), model, DIGEST, limits, 6280)

    def fingerprint(**changes: object) -> str:
        return replace(task, **changes).fingerprint(TRIAL)  # type: ignore[arg-type]

    before = fingerprint()
    others = [
        task.fingerprint(Trial("A", 2)),
        task.fingerprint(Trial("B", 1)),
        fingerprint(digest="cd" * 32),
        fingerprint(master_seed=1),
        fingerprint(model=Model(backend="ollama", name="m:2")),
        fingerprint(model=model.model_copy(update={"options": {"num_predict": 5}})),
        fingerprint(limits=limits.model_copy(update={"tokens": 99})),
        fingerprint(limits=limits.model_copy(update={"seconds": 9})),
        fingerprint(submission=Submission("alpha", replace(program, entry="other.py"))),
    ]
    (tmp_path / "__pycache__").mkdir()
    for name in ("submission.yaml", "__pycache__/main.cpython-311.pyc"):
        (tmp_path / name).write_text("2")
    elsewhere = Model(backend="ollama", name="m:1", host="http://other:1", concurrency=4)
    assert fingerprint(model=elsewhere, limits=limits.model_copy(update={"prompt_words": 1})) == before
    for name in ("main.py", "prompts/build.txt", "new.py", LOCK):
        (tmp_path / name).write_text("2")
        others.append(fingerprint())
    assert len({before, *others}) == 1 + len(others)


def test_without_a_sandbox_no_program_runs_unless_programs_are_trusted(tmp_path: Path):
    with SlowOllama(0.002) as server:
        competition = small(tmp_path, server, PROGRAM)
        code, said = competition.run_and_fail(*STAGE, **NO_SANDBOX)
        assert code == 2
        assert "PCGEVAL_TRUST_PROGRAMS=1" in said
        assert not server.asked
        competition.run(*STAGE, **TRUST)
        assert [record.contained for record in competition.records()] == [False, False]
        before = len(server.asked)
        competition.run(*STAGE, **NO_SANDBOX)  # what is finished needs no sandbox
        assert len(server.asked) == before


def test_a_program_that_wants_too_many_replies_fails_for_good_and_stops_no_run(tmp_path: Path):
    wants_many = PROGRAM["main.py"].replace("chat_with_llm(ctx, messages)", "chat_with_llm(ctx, messages, n=128)")
    assert wants_many != PROGRAM["main.py"]
    with SlowOllama(0.1) as server:
        competition = small(tmp_path, server, {"main.py": wants_many})
        competition.change_params("limits", seconds=2, call_seconds=1)
        competition.run(*STAGE, **TRUST)
    assert [record.cause for record in competition.records()] == [None, None]
    assert all("did not end" in str(record.reason) for record in competition.records())


def test_the_versions_of_its_packages_belong_to_a_trial(tmp_path: Path):
    with SlowOllama(0.002) as server:
        work = {"main.py": "import example\n" + PROGRAM["main.py"], "requirements.txt": "example\n"}
        competition = small(tmp_path / "c", server, work)

        def generate(machine: str) -> set[str]:
            index = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path), **TRUST}
            competition.run(*STAGE, PCGEVAL_CACHE=str(tmp_path / machine), **index)
            return {record.fingerprint for record in competition.records()}

        write_wheel(tmp_path, {"example.py": ""})
        first = generate("first")
        assert [record.reason for record in competition.records()] == [None, None]
        before, asked = competition.outputs(), len(server.asked)
        write_wheel(tmp_path, {"example.py": ""}, version="2.0")
        generate("second")  # which has the lock
        assert competition.outputs() == before
        (competition.folder / "data/submissions/alpha" / LOCK).unlink()
        assert not generate("third") & first
    assert len(server.asked) == asked  # the call log knows all replies


def test_packages_that_no_index_has_are_the_programs_fault_but_an_unreachable_index_decides_nothing(tmp_path: Path):
    unreachable = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0", "UV_OFFLINE": "0"}
    cache = {"PCGEVAL_CACHE": str(tmp_path / "cache"), **TRUST}
    with SlowOllama(0.002) as server:
        competition = small(tmp_path / "c", server, {**PROGRAM, "requirements.txt": "no-such-package\n"})
        competition.add_team("beta", PROMPT)
        code, said = competition.run_and_fail(*STAGE, **unreachable, **cache)
        assert code == 2
        assert "cannot be reached" in said
        assert not competition.records()
        assert len(competition.records("beta")) == len(server.asked) == 2
        competition.run(*STAGE, UV_NO_INDEX="1", UV_FIND_LINKS=str(tmp_path), **cache)
        assert len(server.asked) == 2
    assert ["no-such-package" in str(record.reason) for record in competition.records()] == [True, True]


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
        competition = small(tmp_path, server, ENDLESS)
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
    assert not competition.records()
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
