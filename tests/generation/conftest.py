"""Programs of these tests, each run for one trial in a fresh process, in the sandbox where there is one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from program_trials import SEED, TestModel, echo, limits, trial_job, write_program

from pcgeval.core.params import Limits
from pcgeval.generation.runners import ProgramRunner, TrialRun
from pcgeval.sandbox.sandbox import ResourceLimits, Sandbox, open_sandbox
from pcgeval.submissions.load import Program
from pcgeval.submissions.packages import interpreter_for


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a program that requires nothing: it has none of the packages that run these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCGEVAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return interpreter_for(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    most = ResourceLimits(
        memory_bytes=200_000_000, processes=24, scratch_bytes=16_000_000, file_bytes=4_000_000, output_bytes=4_000_000
    )
    return open_sandbox(most, trust_programs=True)


@pytest.fixture
def run(sandbox: Sandbox, tmp_path: Path, bare_python: Path) -> Callable[..., TrialRun]:
    """Return a function that runs one trial of a program, by its source below the usual imports or by its folder."""

    def run_trial(
        source: str | Program, model: TestModel | None = None, rules: Limits | None = None, seed: int = SEED
    ) -> TrialRun:
        program = source if isinstance(source, Program) else write_program(tmp_path / "program", source)
        runner = ProgramRunner(program, sandbox, rules or limits(), bare_python)
        return runner.run_trial(replace(trial_job(), seed=seed), model or TestModel(echo))

    return run_trial


@pytest.fixture
def answer(run: Callable[..., TrialRun]) -> Callable[..., str]:
    """Return a function that runs a program once and returns its answer."""

    def answer_of(source: str, seed: int = SEED) -> str:
        done = run(source, seed=seed)
        assert done.reason is None, done.reason
        return done.response

    return answer_of
