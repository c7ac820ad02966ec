"""`pcgeval evaluate` in one process: rows per CPU second, bytes a row, on the golden mix of levels; one figure a line.

A row of the mix is a level of 13 blocks on average, half of which fall. With all levels equal only reading, conversion
and writing are left: what the machine does that feeds a cluster.
"""

import gzip
import json
import tempfile
import time
from pathlib import Path

from pcgeval.bulk.evaluate import evaluate

GOLDEN = Path(__file__).parents[1] / "tests/golden/physics/physics.jsonl.gz"
LEVELS = 256
EQUAL_ROWS = 20_000


def main() -> None:
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="\n") as file:
        cases = [json.loads(line) for line in file][:LEVELS]
    texts = ["```\n" + "".join(f"drop_block('{kind}', {at})\n" for kind, at in case["drops"]) + "```" for case in cases]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mix, equal = write_rows(folder / "mix.jsonl", texts), write_rows(folder / "equal.jsonl", texts[:1] * EQUAL_ROWS)
        evaluate([mix], folder / "warm", processes=1)  # the classifier is loaded once
        simulated, _ = measured(mix, folder / "simulated", len(texts), classify=False)
        classified, size = measured(mix, folder / "classified", len(texts))
        _, embedded = measured(mix, folder / "embedded", len(texts), embeddings=True)
        feeding, _ = measured(equal, folder / "equal", EQUAL_ROWS, classify=False)
    print(f"evaluate.simulated {simulated:.0f} rows/cpu_s")
    print(f"evaluate.classified {classified:.1f} rows/cpu_s")
    print(f"evaluate.classify_alone {1 / (1 / classified - 1 / simulated):.1f} rows/cpu_s")
    print(f"evaluate.equal {feeding:.0f} rows/cpu_s")
    print(f"evaluate.size {size:.0f} bytes/row")
    print(f"evaluate.size_with_embeddings {embedded:.0f} bytes/row")


def write_rows(path: Path, texts: list[str]) -> Path:
    """Write the texts as rows."""
    rows = ({"id": number, "letter": "I", "text": text} for number, text in enumerate(texts))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def measured(
    source: Path, out: Path, rows: int, *, classify: bool = True, embeddings: bool = False
) -> tuple[float, float]:
    """Return the rows per CPU second of an evaluation, and the bytes of its Parquet files for each row."""
    start = time.process_time()
    evaluate([source], out, processes=1, classify=classify, embeddings=embeddings)
    seconds = time.process_time() - start
    return rows / seconds, sum(path.stat().st_size for path in out.glob("part-*.parquet")) / rows


if __name__ == "__main__":
    main()
