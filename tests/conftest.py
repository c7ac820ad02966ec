"""Shared by all tests: a competition, a profile for hypothesis, signals, and the slow tests."""

import multiprocessing.util
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from this_machine import SOAK, why_no_sandbox

# With a process for each core, more threads only wait for one another, and they do so at work.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

# What tests write need not outlive the machine: this process, unlike those that it starts, does not wait for the disk.
os.fsync = lambda _: None

# A shell starts background jobs with Ctrl-C ignored, nohup with SIGHUP ignored, and the tests' processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The machine may be busy, so no example has a deadline; `make test-soak` draws as many examples as hypothesis would.
settings.register_profile("default", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("default"), max_examples=200)
settings.load_profile("soak" if SOAK else "default")

# Tests make some hundred thousand files and folders, which many a disk takes milliseconds each to remove.
MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder there that only this user can open
ROOM = 2 * 2**30  # bytes, many times what the tests use at once
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

TESTS = Path(__file__).parent
SLOW = {  # folders and modules that start other processes, load a network or a large package, or take seconds
    *("end_to_end", "llm", "proof", "rl", "sandbox", "soak"),
    *("test_check", "test_grade_runs", "test_rounds", "test_run", "test_try_command"),  # cli
    *("test_attack", "test_judge_budget", "test_judge_endpoints", "test_judge_resume"),  # judge
    *("test_generate", "test_resume", "test_programs"),  # generation
    *("test_filing", "test_packages", "test_sources"),  # submissions
    *("test_evaluate", "test_golden_levels", "test_golden_physics", "test_simulate_stage"),  # from levels to scores
    *("test_classifier", "test_classify_stage", "test_report_page", "test_run_status", "test_rubric_loading"),
    *("test_docs", "test_package"),
}
LONGEST = {"end_to_end", "soak"}  # folders with the modules that take longest, most of the time waiting


def is_slow(path: Path) -> bool:
    return path.is_relative_to(TESTS) and not SLOW.isdisjoint(path.relative_to(TESTS).with_suffix("").parts)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the slow modules where none of their tests is wanted: the first result comes sooner."""
    return True if is_slow(collection_path) and "not slow" in config.option.markexpr else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests and put them first; skip what needs a sandbox where none starts."""
    for item in items:
        if is_slow(item.path):
            item.add_marker("slow")
        if item.get_closest_marker("needs_sandbox") and (reason := why_no_sandbox()):
            item.add_marker(pytest.mark.skip(reason=f"no sandbox starts here: {reason}"))
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if item.path.parent.name in LONGEST:
        return 0
    return 1 if item.get_closest_marker("slow") or item.get_closest_marker("llm") else 2


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let temporary folders of the package, also in other processes, lie where those of the tests do."""
    multiprocessing.util.get_temp_dir()  # not there: it is removed after all others
    tempfile.tempdir = os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("temporary"))


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[[Callable[[Path], Path]], Path]:
    """Return a function that gives a folder, which the first process of pytest-xdist to need it makes."""

    def shared(make: Callable[[Path], Path]) -> Path:
        if worker_id == "master":
            return make(tmp_path_factory.mktemp(make.__name__))
        folder = tmp_path_factory.getbasetemp().parent / make.__name__
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                make(folder.with_suffix(".part")).rename(folder)
        return folder

    return shared


@pytest.fixture(scope="session")
def competition(shared_folder: Callable[[Callable[[Path], Path]], Path]) -> Path:
    """The small competition of recorded replies, evaluated by its stages; no test changes it."""
    from workspace import make_evaluated  # it imports most of the package

    return shared_folder(make_evaluated)
