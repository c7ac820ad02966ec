"""Work on a real Dask cluster of two processes: the same bytes as on one machine, also when a worker is lost."""

import json
import os
import shutil
import signal

import pytest
from distributed import Client, LocalCluster
from levels_for_tests import dropped
from params_for_tests import contents, small_params

from pcgeval import PhysicsParams, evaluate
from pcgeval.core.files import write_text
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.formats.layout import CLASSIFIER, PACKAGED_DATA, Trial, stage_dir, trial_file
from pcgeval.parallel import cluster
from pcgeval.parallel.processes import map_batches
from pcgeval.similarity.stage import classify_stage

pytestmark = pytest.mark.slow  # starts processes
FAST = PhysicsParams(trials=1, seconds=0.2)


@pytest.fixture(scope="module")
def local_cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as started:
        yield started


def squares(numbers):
    """Return the squares; 13 ends the process."""
    if 13 in numbers:
        os._exit(1)
    return [number**2 for number in numbers]


def test_a_crash_costs_its_item_alone(local_cluster, monkeypatch):
    monkeypatch.setattr(local_cluster.scheduler, "allowed_failures", 0)  # else four workers have to end for it, twice
    results = map_batches(squares, [[1], [2, 13, 3], [4]], 1, local_cluster.scheduler_address)
    assert list(map(list, results)) == [[1], [4, None, 9], [16]]


def test_a_lost_worker_changes_no_byte(local_cluster, tmp_path):
    texts = [f"```\ndrop_block('b11', {n % 9 + 2})\ndrop_block('b13', {n % 4 + 1})\n```" for n in range(200)]
    rows = [{"id": number, "letter": "I", "text": text} for number, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {"physics": FAST, "rows_per_part": 20}
    address = local_cluster.scheduler_address
    with Client(local_cluster) as client:
        client.wait_for_workers(2, timeout=120)  # one of them may just be started again
        pid, _ = client.run(os.getpid).values()

    def kill_one(row):
        if row.id == "3":
            os.kill(pid, signal.SIGKILL)

    evaluate([tmp_path / "in.jsonl"], tmp_path / "far", scheduler=address, report=kill_one, **settings)
    evaluate([tmp_path / "in.jsonl"], tmp_path / "here", processes=1, **settings)
    assert contents(tmp_path / "far") == contents(tmp_path / "here")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def run_stages(folder, scheduler):
    """Simulate and classify three levels, one of them broken; return all that is written but the state of files."""
    shutil.copytree(PACKAGED_DATA / "classifier", folder / CLASSIFIER, dirs_exist_ok=True)
    params = small_params("I", 3, physics=FAST.model_dump(), execution={"scheduler": scheduler})
    for number, xml in enumerate((dropped([("b11", 5)]), dropped([("b13", 4), ("b31", 5)]), "<Level"), start=1):
        write_text(trial_file(folder / stage_dir("levels", "m", "team"), "levels", "team", Trial("I", number)), xml)
    simulate_stage(params, folder, processes=1)
    classify_stage(params, folder)
    return {name: data for name, data in contents(folder).items() if not name.startswith(".cache/stages/")}


def test_the_stages_write_the_same_bytes_and_send_nothing_that_was_done_before(local_cluster, tmp_path, monkeypatch):
    address = local_cluster.scheduler_address
    here = run_stages(tmp_path / "here", None)
    # the classifier is not loaded on this machine
    monkeypatch.setattr("pcgeval.similarity.classifier.loaded_classifier", lambda *_, **__: pytest.fail("loaded here"))
    assert run_stages(tmp_path / "params", address) == here
    monkeypatch.setenv("PCGEVAL_SCHEDULER", address)
    assert run_stages(tmp_path / "environment", "tcp://127.0.0.1:9") == here
    monkeypatch.setenv("PCGEVAL_SCHEDULER", "tcp://127.0.0.1:9")  # where no scheduler is
    assert run_stages(tmp_path / "here", None) == here


def test_a_cluster_without_workers_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(cluster, "ROOM_SECONDS", 0.1)
    monkeypatch.setattr(cluster, "LOST_SECONDS", 0.2)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0", memory_limit=0) as lost:

        def batches():
            with Client(lost) as client:
                client.retire_workers(list(lost.scheduler.workers))
            yield [1]

        with pytest.raises(cluster.ClusterError, match="has no workers"):
            list(map_batches(squares, batches(), 1, lost.scheduler_address))


def test_workers_with_other_versions_and_an_address_without_a_scheduler_are_named(local_cluster, monkeypatch):
    monkeypatch.setattr(cluster, "environment", lambda: {"Python": "3.11", "pymunk": "0.1"})
    with pytest.raises(cluster.ClusterError, match=r"pymunk is .* and not 0\.1"):
        list(map_batches(squares, [[1]], 1, local_cluster.scheduler_address))
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.2)
    with pytest.raises(cluster.ClusterError, match=r"tcp:.*: no scheduler"):
        list(map_batches(squares, [[1]], 1, "tcp://127.0.0.1:9"))
