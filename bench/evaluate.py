"""`pcgeval evaluate`: rows per CPU second, bytes a row, memory, and tasks of a cluster; one figure a line.

A row of the mix is a level of 13 blocks on average, half of which fall. With all levels equal only reading and
writing are left: what the machine does that feeds a cluster.
"""

import gzip
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from distributed import LocalCluster

from pcgeval.bulk.evaluate import evaluate
from pcgeval.parallel import cluster as cluster_module
from pcgeval.parallel.processes import map_batches

GOLDEN = Path(__file__).parents[1] / "tests/golden/physics/physics.jsonl.gz"
LEVELS = 256
EQUAL_ROWS = 20_000
MANY_ROWS = 200_000
TASKS = 1000


def main() -> None:
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="\n") as file:
        cases = [json.loads(line) for line in file][:LEVELS]
    texts = ["```\n" + "".join(f"drop_block('{kind}', {at})\n" for kind, at in case["drops"]) + "```" for case in cases]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {"one": texts[:1], "mix": texts, "equal": texts[:1] * EQUAL_ROWS, "many": texts[:1] * MANY_ROWS}
        sources = {name: write_rows(folder / f"{name}.jsonl", rows[name]) for name in rows}
        _, one = measured(sources["one"], folder / "one", 1)  # the classifier is loaded, and is so once
        _, one_embedded = measured(sources["one"], folder / "one-embedded", 1, embeddings=True)
        simulated, _ = measured(sources["mix"], folder / "simulated", LEVELS, classify=False)
        classified, size = measured(sources["mix"], folder / "classified", LEVELS)
        _, embedded = measured(sources["mix"], folder / "embedded", LEVELS, embeddings=True)
        feeding, _ = measured(sources["equal"], folder / "equal", EQUAL_ROWS, classify=False)
        print(f"evaluate.simulated {simulated:.0f} rows/cpu_s")
        print(f"evaluate.classified {classified:.1f} rows/cpu_s")
        print(f"evaluate.classify_alone {1 / (1 / classified - 1 / simulated):.1f} rows/cpu_s")
        print(f"evaluate.equal {feeding:.0f} rows/cpu_s")
        print(f"evaluate.size {(size - one) / (LEVELS - 1):.0f} bytes/row beside {one} a file")
        print(f"evaluate.size_with_embeddings {(embedded - one_embedded) / (LEVELS - 1):.0f} bytes/row")
        for count, kind in ((EQUAL_ROWS, "equal"), (MANY_ROWS, "many")):
            print(f"evaluate.memory_{count}_rows {memory(sources[kind], folder / f'{kind}-memory'):.0f} MB")
        print(
            f"evaluate.cluster_tasks {cluster_tasks():.0f} tasks/s, 100 under way, two workers that have nothing to do"
        )


def write_rows(path: Path, texts: list[str]) -> Path:
    """Write the texts as rows."""
    rows = ({"id": number, "letter": "I", "text": text} for number, text in enumerate(texts))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def measured(
    source: Path, out: Path, rows: int, *, classify: bool = True, embeddings: bool = False
) -> tuple[float, int]:
    """Return the rows per CPU second of an evaluation in this process, and the bytes of its Parquet files."""
    start = time.process_time()
    evaluate([source], out, processes=1, classify=classify, embeddings=embeddings)
    seconds = time.process_time() - start
    return rows / seconds, sum(path.stat().st_size for path in out.glob("data/*.parquet"))


def memory(source: Path, out: Path) -> float:
    """Return the most memory that a process of its own held for an evaluation, in MB."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(peak_of, (source, out))


def peak_of(source: Path, out: Path) -> float:
    evaluate([source], out, processes=1, classify=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


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
