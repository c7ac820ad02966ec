"""Texts per CPU second through extraction and conversion, on the golden responses; one figure a line."""

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

from pcgeval.levels.extraction import extract_code
from pcgeval.levels.xml import LevelError, level_blocks, level_xml

GOLDEN = Path(__file__).parents[1] / "tests/golden/levels/levels.jsonl.gz"
PASSES = 10


def extract_and_convert(response: str) -> str | None:
    code = extract_code(response)
    return None if code is None else convert(code)


def convert(code: str) -> str | None:
    try:
        return level_xml(code)
    except LevelError:
        return None


def rate(work: Callable[[str], object], texts: list[str]) -> float:
    """Return texts per CPU second, the mean over all passes; the first pass is not warmed up."""
    start = time.process_time()
    for _ in range(PASSES):
        for text in texts:
            work(text)
    return PASSES * len(texts) / (time.process_time() - start)


def main() -> None:
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="\n") as file:
        cases = [json.loads(line) for line in file]
    responses = [case["response"] for case in cases]
    print(f"levels.extract_and_convert {rate(extract_and_convert, responses):.0f} texts/cpu_s")
    print(f"levels.extract {rate(extract_code, responses):.0f} texts/cpu_s")
    print(f"levels.convert {rate(convert, [case['extracted'] for case in cases if case['extracted']]):.0f} texts/cpu_s")
    print(f"levels.read {rate(level_blocks, [case['xml'] for case in cases if case['xml']]):.0f} levels/cpu_s")


if __name__ == "__main__":
    main()
