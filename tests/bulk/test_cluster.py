"""Work on a real Dask cluster of two processes: the same bytes as on one machine, also when a worker is lost."""

import functools
import itertools
import os
import shutil
import signal
from pathlib import Path

import pytest
from competition_folder import PROGRAM, PROMPT, CompetitionFolder, competition_folder
from distributed import Client, LocalCluster
from levels_for_tests import dropped
from slow_ollama import SlowOllama

from pcgeval.bulk.evaluate import evaluate
from pcgeval.core import cluster
from pcgeval.core.cluster import ClusterError
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import to_json, write_text
from pcgeval.core.layout import PACKAGED_DATA, Trial, trial_file
from pcgeval.core.params import PhysicsParams, Similarity
from pcgeval.core.spread import folder_here, spread
from pcgeval.core.stage_files import succeeded, write_outcomes
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.similarity.stage import classify_stage

pytestmark = pytest.mark.slow  # starts processes
SECONDS = 120  # for a worker to start on a busy machine
LOADS = itertools.count()  # of this process
SIMILARITY = Similarity(model=str(PACKAGED_DATA / "classifier"))
FAST = PhysicsParams(trials=1, seconds=0.2)


@pytest.fixture(scope="module")
def local_cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as found:
        yield found


@pytest.fixture(scope="module")
def address(local_cluster):
    return local_cluster.scheduler_address


def squares(numbers):
    """Return the squares; 13 ends the process, a negative number is refused."""
    if 13 in numbers:
        os._exit(1)
    if min(numbers) < 0:
        raise PcgevalError("a negative number. Give others.")
    return [number**2 for number in numbers]


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_results_come_in_order(address):
    batches = [[number, number + 1] for number in range(12)]
    found = list(spread(squares, [[], *batches], 1, address))
    assert [list(each) for each in found] == [[], *([a * a, b * b] for a, b in batches)]


def test_an_error_of_the_work_is_raised(address):
    with pytest.raises(PcgevalError, match="negative"):
        list(spread(squares, [[1], [-1]], 1, address))


def test_an_item_that_ends_its_workers_costs_that_item_only(local_cluster, monkeypatch):
    monkeypatch.setattr(local_cluster.scheduler, "allowed_failures", 0)  # else four workers have to end for it, twice
    found = list(spread(squares, [[1], [2, 13, 3], [4]], 1, local_cluster.scheduler_address))
    assert [list(each) for each in found] == [[1], [4, None, 9], [16]]


@functools.cache
def loaded(file):
    return [os.getpid(), file.read_bytes(), next(LOADS)]


def load_far(_, sha256):
    """Return what a worker has of a folder that was sent to it, and how often it was loaded there."""
    return [loaded(folder_here(Path("nowhere"), sha256) / "weights")]


def test_the_files_of_a_folder_are_sent_to_each_worker_and_loaded_once(address, tmp_path):
    (tmp_path / "weights").write_bytes(b"1 2 3")
    work = functools.partial(load_far, sha256="ab" * 32)
    found = [each for (each,) in spread(work, [[n] for n in range(10)], 1, address, {"ab" * 32: tmp_path})]
    with Client(address) as client:
        client.wait_for_workers(2, timeout=SECONDS)
        found += [each for (each,) in client.run(load_far, [0], "ab" * 32).values()]
    assert {content for _, content, _ in found} == {b"1 2 3"}
    assert len({tuple(each) for each in found}) == 2  # a process each, which loaded it once


def test_a_lost_worker_changes_no_byte(address, tmp_path):
    rows = [
        {"id": n, "letter": "I", "text": f"```\ndrop_block('b11', {n % 9 + 2})\ndrop_block('b13', {n % 4 + 1})\n```"}
        for n in range(200)
    ]
    write_text(tmp_path / "in.jsonl", "".join(to_json(row, indent=None) + "\n" for row in rows))
    settings = {"physics": FAST, "rows_per_part": 20}
    with Client(address) as client:
        pids = sorted(client.run(os.getpid).values())

        def kill_one(row):
            if row.id == "3":
                os.kill(pids[0], signal.SIGKILL)

        evaluate([tmp_path / "in.jsonl"], tmp_path / "far", scheduler=address, report=kill_one, **settings)
        client.wait_for_workers(2, timeout=SECONDS)
        assert pids[0] not in client.run(os.getpid, on_error="ignore").values()
    evaluate([tmp_path / "in.jsonl"], tmp_path / "here", processes=1, **settings)
    assert contents(tmp_path / "far") == contents(tmp_path / "here")


def test_the_stages_write_the_same_bytes(address, tmp_path):
    trials = [Trial("I", number) for number in range(1, 4)]
    for trial in trials:
        xml = dropped([("b11", trial.number)]) if trial.number < 3 else "<Level"
        write_text(trial_file(tmp_path / "levels", "levels", "team", trial), xml)
    write_outcomes(tmp_path / "levels", [succeeded(trial) for trial in trials])
    for name, scheduler in (("far", address), ("here", None)):
        folders = tmp_path / name / "stability", tmp_path / name / "images"
        simulate_stage(tmp_path / "levels", *folders, "team", trials, physics=FAST, processes=1, scheduler=scheduler)
        similarity, cache = tmp_path / name / "similarity", tmp_path / f"{name}-cache"
        classify_stage(folders[1], similarity, "team", trials, SIMILARITY, cache, scheduler=scheduler)
    assert contents(tmp_path / "far") == contents(tmp_path / "here")


class CountingOllama(SlowOllama):
    """Counts how many requests are under way at once."""

    most = 0

    def words(self, asked, key):
        self.most = max(self.most, len(self.asked) - self.answered)
        return super().words(asked, key)


@pytest.mark.parametrize(
    "work",
    [pytest.param(PROMPT, id="prompt"), pytest.param(PROGRAM, id="program", marks=pytest.mark.needs_sandbox)],
)
def test_trials_are_done_on_the_cluster_and_logged_here(address, tmp_path, work):
    here, far = (tmp_path / name for name in ("here", "far"))
    with CountingOllama() as server:
        competition_folder(here, server.address, work, letters="AB", trials=2).generate()
        asked = len(server.asked)
        competition = competition_folder(far, server.address, work, letters="AB", trials=2)
        competition.change_params("execution", scheduler=address)
        competition.generate()
        assert len(server.asked) == 2 * asked
        assert server.most == 2  # the model's concurrency
        assert competition.timeless_outputs() == CompetitionFolder(here).timeless_outputs()
        shutil.rmtree(far / "data/raw")
        competition.generate()  # from the call log
        assert len(server.asked) == 2 * asked


def test_workers_with_other_versions_are_refused(address, monkeypatch):
    monkeypatch.setattr(cluster, "environment", lambda: {"Python": "3.11", "pymunk": "0.1"})
    with pytest.raises(ClusterError, match=r"pymunk is .* and not 0\.1"):
        list(spread(squares, [[1]], 1, address))


def test_a_cluster_without_workers_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(cluster, "ROOM_SECONDS", 0.1)
    monkeypatch.setattr(cluster, "LOST_SECONDS", 0.2)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0", memory_limit=0) as lost:

        def batches():
            with Client(lost) as client:
                client.retire_workers(list(lost.scheduler.workers))
            yield [1]

        with pytest.raises(ClusterError, match="lost all its workers"):
            list(spread(squares, batches(), 1, lost.scheduler_address))


def test_an_address_without_a_scheduler_is_named(monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.2)
    with pytest.raises(ClusterError, match=r"tcp:.*: no scheduler"):
        list(spread(squares, [[1]], 1, "tcp://127.0.0.1:9"))
