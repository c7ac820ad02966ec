"""`pcgeval evaluate`, all processes counted: every figure of "Many levels" in docs/scale.md, one a line.

A row of the mix is a level of 13 blocks on average, half of which fall. The cost of a run of one row, which starts
processes and loads the classifier, is taken off. With all rows equal only reading and writing are left: what the
machine does that feeds a cluster.
"""

import gzip
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from distributed import LocalCluster

from pcgeval import evaluate
from pcgeval.parallel import cluster as cluster_module
from pcgeval.parallel.processes import map_batches

GOLDEN = Path(__file__).parents[1] / "tests/golden/physics/physics.jsonl.gz"
EQUAL_ROWS, MANY_ROWS = 20_000, 200_000
TASKS = 1000
CORES = os.cpu_count() or 1
RUSAGE = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


class Cost(NamedTuple):
    """What a run took: CPU of all its processes, time, and bytes of Parquet."""

    cpu: float
    wall: float
    size: int


def main() -> None:
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="\n") as file:
        cases = [json.loads(line) for line in file]
    texts = ["```\n" + "".join(f"drop_block('{kind}', {at})\n" for kind, at in case["drops"]) + "```" for case in cases]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {"one": texts[:1], "mix": texts, "equal": texts[:1] * EQUAL_ROWS, "many": texts[:1] * MANY_ROWS}
        for source, content in rows.items():
            lines = ({"id": number, "letter": "I", "text": text} for number, text in enumerate(content))
            (folder / f"{source}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        print_levels(folder, len(texts))
        print_rows(folder)
    print(f"evaluate.cluster_tasks {cluster_tasks():.0f} tasks/s, 100 under way, two workers that have nothing to do")


def print_levels(folder: Path, levels: int) -> None:
    """Print the cost of levels that differ: in one process, on all cores, and on a cluster of this machine."""
    start = measured(folder, "one")
    print(f"evaluate.start {start.cpu:.1f} cpu_s, {start.size} bytes: a run of one row in one process")
    simulated = rate(levels, measured(folder, "mix", classify=False), measured(folder, "one", classify=False))
    classified_cost = measured(folder, "mix")
    classified = rate(levels, classified_cost, start)
    print(f"evaluate.simulated {simulated:.1f} levels/cpu_s")
    print(f"evaluate.classify_alone {1 / (1 / classified - 1 / simulated):.1f} levels/cpu_s")
    print(f"evaluate.classified {classified:.1f} levels/cpu_s, one process")
    whole, first = (measured(folder, name, processes=CORES) for name in ("mix", "one"))
    print(f"evaluate.all_cores {rate(levels, whole, first):.1f} levels/cpu_s, {CORES} processes")
    print(f"evaluate.all_cores_wall {(levels - 1) / (whole.wall - first.wall):.1f} levels/s")
    with LocalCluster(n_workers=CORES, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        measured(folder, "equal", scheduler=address)  # each worker loads what it needs
        print(f"evaluate.cluster {rate(levels, measured(folder, 'mix', scheduler=address)):.1f} levels/cpu_s, Dask")
    print(f"evaluate.million {1e6 / classified / 3600:.2f} core_h for 1 000 000 different levels")
    print(f"evaluate.size {(classified_cost.size - start.size) / (levels - 1):.0f} bytes/row")
    sizes = [measured(folder, name, embeddings=True).size for name in ("mix", "one")]
    print(f"evaluate.size_with_embeddings {(sizes[0] - sizes[1]) / (levels - 1):.0f} bytes/row")


def print_rows(folder: Path) -> None:
    """Print the cost of rows with a text that was measured before, or in an earlier run, and the memory."""
    start = measured(folder, "one", classify=False)
    print(f"evaluate.equal {rate(EQUAL_ROWS, measured(folder, 'equal', classify=False), start):.0f} rows/cpu_s")
    many = measured(folder, "many", classify=False)
    print(f"evaluate.equal_many {rate(MANY_ROWS, many, start):.0f} rows/cpu_s")
    again = measured(folder, "many", "many-False", classify=False)
    print(f"evaluate.resumed {MANY_ROWS / again.cpu:.0f} rows/cpu_s that an earlier run finished")
    for count, name in ((EQUAL_ROWS, "equal"), (MANY_ROWS, "many")):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            print(f"evaluate.memory_{count}_rows {pool.submit(peak, folder, name).result():.0f} MB")


def rate(rows: int, cost: Cost, start: Cost | None = None) -> float:
    """Return the rows per CPU second, without those of a run of one row."""
    return (rows - 1) / (cost.cpu - start.cpu) if start else rows / cost.cpu


def measured(folder: Path, name: str, out: str | None = None, **options: Any) -> Cost:
    """Return the cost of an evaluation; its table stays, so that a run with the same `out` resumes it."""
    out = out or "-".join([name, *(str(option) for option in options.values())]).replace("/", "-")
    cpu, wall = cpu_seconds(), time.perf_counter()
    evaluate([folder / f"{name}.jsonl"], folder / out, **{"processes": 1, **options})
    size = sum(path.stat().st_size for path in (folder / out).glob("data/*.parquet"))
    return Cost(cpu_seconds() - cpu, time.perf_counter() - wall, size)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all that it started, ended ones and living ones."""
    ended = sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, RUSAGE))
    return ended + sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children(recursive=True))


def peak(folder: Path, name: str) -> float:
    """Return the most memory that this process, which reads and writes, held for an evaluation, in MB."""
    measured(folder, name, f"{name}-memory", classify=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def nothing(batch: Sequence[int]) -> Sequence[int]:
    return batch


def cluster_tasks() -> float:
    """Return how many batches a second go through a scheduler of this machine, as many under way as of 50 workers."""
    cluster_module.AHEAD = 50  # of two workers
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        start = time.perf_counter()
        for _ in map_batches(nothing, [[task] for task in range(TASKS)], 1, cluster.scheduler_address):
            pass
        return TASKS / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
