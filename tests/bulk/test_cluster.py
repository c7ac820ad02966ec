"""Work on a real Dask cluster of two processes: the same bytes as on one machine, also when a worker is lost."""

import json
import os
import signal

import pytest
from distributed import Client, LocalCluster
from levels_for_tests import dropped
from params_for_tests import contents, small_params
from waiting import wait_until

from pcgeval import PcgevalError, PhysicsParams, Similarity, evaluate
from pcgeval.core import cluster
from pcgeval.core.cluster import ClusterError
from pcgeval.core.files import write_text
from pcgeval.core.layout import PACKAGED_DATA, Trial, stage_dir, trial_file
from pcgeval.core.parallel import map_batches
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.similarity.stage import classify_stage

pytestmark = pytest.mark.slow  # starts processes
SECONDS = 120  # for a worker to start on a busy machine
SIMILARITY = Similarity(model=str(PACKAGED_DATA / "classifier"))
FAST = PhysicsParams(trials=1, seconds=0.2)


@pytest.fixture(scope="module")
def local_cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as started:
        yield started


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


def squared(batches, address):
    return [list(results) for results in map_batches(squares, batches, 1, address)]


def test_results_come_in_order_errors_are_raised_and_a_crash_costs_its_item_alone(local_cluster, monkeypatch):
    address = local_cluster.scheduler_address
    batches = [[number, number + 1] for number in range(12)]
    assert squared(batches, address) == [[a * a, b * b] for a, b in batches]
    with pytest.raises(PcgevalError, match="negative"):
        squared([[1], [-1]], address)
    monkeypatch.setattr(local_cluster.scheduler, "allowed_failures", 0)  # else four workers have to end for it, twice
    assert squared([[1], [2, 13, 3], [4]], address) == [[1], [4, None, 9], [16]]


def worker_pids(client):
    """Return the processes of both workers, once those that a test ended are replaced."""
    pids = set()

    def are_two():
        pids.clear()
        pids.update(client.run(os.getpid, on_error="ignore").values())
        return len(pids) == 2

    wait_until(are_two, seconds=SECONDS)
    return sorted(pids)


def test_a_lost_worker_changes_no_byte(address, tmp_path):
    texts = [f"```\ndrop_block('b11', {n % 9 + 2})\ndrop_block('b13', {n % 4 + 1})\n```" for n in range(200)]
    rows = [json.dumps({"id": number, "letter": "I", "text": text}) for number, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    settings = {"physics": FAST, "rows_per_part": 20}
    with Client(address) as client:
        pids = worker_pids(client)

        def kill_one(row):
            if row.id == "3":
                os.kill(pids[0], signal.SIGKILL)

        evaluate([tmp_path / "in.jsonl"], tmp_path / "far", scheduler=address, report=kill_one, **settings)
        assert pids[0] not in worker_pids(client)
    evaluate([tmp_path / "in.jsonl"], tmp_path / "here", processes=1, **settings)
    assert contents(tmp_path / "far") == contents(tmp_path / "here")


def run_stages(folder, scheduler):
    """Simulate and classify three levels, one of them broken; return all that is written."""
    execution = {"scheduler": scheduler}
    settings = {"physics": FAST.model_dump(), "similarity": SIMILARITY.model_dump(), "execution": execution}
    for number, xml in enumerate((dropped([("b11", 5)]), dropped([("b13", 4), ("b31", 5)]), "<Level"), start=1):
        path = trial_file(folder / stage_dir("levels", "m", "team"), "levels", "team", Trial("I", number))
        write_text(path, xml)
    params = small_params("I", 3, **settings)
    simulate_stage(params, folder, processes=1)
    classify_stage(params, folder)
    return contents(folder)


def test_the_stages_write_the_same_bytes_and_send_nothing_that_was_done_before(address, tmp_path, monkeypatch):
    here = run_stages(tmp_path / "here", None)
    # the classifier is not loaded on this machine
    monkeypatch.setattr("pcgeval.similarity.stage.loaded_classifier", lambda *_, **__: pytest.fail("loaded here"))
    assert run_stages(tmp_path / "params", address) == here
    monkeypatch.setenv("PCGEVAL_SCHEDULER", address)
    assert run_stages(tmp_path / "environment", "tcp://127.0.0.1:9") == here
    monkeypatch.setenv("PCGEVAL_SCHEDULER", "tcp://127.0.0.1:9")  # where no scheduler is
    assert run_stages(tmp_path / "here", None) == here
    assert {name.split("/")[1] for name in here} >= {"stability", "images", "replays", "similarity", "predictions"}


def test_a_cluster_without_workers_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(cluster, "ROOM_SECONDS", 0.1)
    monkeypatch.setattr(cluster, "LOST_SECONDS", 0.2)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0", memory_limit=0) as lost:

        def batches():
            with Client(lost) as client:
                client.retire_workers(list(lost.scheduler.workers))
            yield [1]

        with pytest.raises(ClusterError, match="has no workers"):
            squared(batches(), lost.scheduler_address)


def test_workers_with_other_versions_and_an_address_without_a_scheduler_are_named(address, monkeypatch):
    monkeypatch.setattr(cluster, "environment", lambda: {"Python": "3.11", "pymunk": "0.1"})
    with pytest.raises(ClusterError, match=r"pymunk is .* and not 0\.1"):
        squared([[1]], address)
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.2)
    with pytest.raises(ClusterError, match=r"tcp:.*: no scheduler"):
        squared([[1]], "tcp://127.0.0.1:9")
