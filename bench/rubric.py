"""How long it takes to load and grade a rubric of 361 leaves, the size of PaperBench's `rice`, with each judge.

Run as `python bench/rubric.py [RUBRIC.json]`; without a file the rubric is made up. CPU seconds, one figure a line.
"""

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from pcgeval.checks.gathering import gather_submission
from pcgeval.core.files import to_json
from pcgeval.judge.grading import check_verdict, dummy_verdict, judge_leaves, random_verdict
from pcgeval.rubric.grades import JudgeOutput
from pcgeval.rubric.loading import load_rubric
from pcgeval.rubric.tree import CATEGORIES, leaves

LEAVES = 361
LEAVES_A_NODE = 3


def made_up_rubric(*, checks: bool = True) -> dict[str, object]:
    """Return a rubric of so many leaves, three below each node; with checks a program can decide each of them."""
    tasks: list[dict[str, object]] = [
        {
            "id": f"leaf-{number}",
            "requirements": f"Criterion {number} is met.",
            "weight": 1 + number % 3,
            "sub_tasks": [],
            "task_category": CATEGORIES[number % 3],
        }
        for number in range(LEAVES)
    ]
    if checks:
        for number, task in enumerate(tasks):
            task["check"] = {"name": "prompt_mentions", "arguments": {"text": str(number)}}
    groups = [
        {
            "id": f"group-{start}",
            "requirements": "All of a group.",
            "weight": 1,
            "sub_tasks": tasks[start : start + LEAVES_A_NODE],
        }
        for start in range(0, LEAVES, LEAVES_A_NODE)
    ]
    return {"id": "root", "requirements": "Everything.", "weight": 1, "sub_tasks": groups}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rubric.json"
        path.write_text(json.dumps(made_up_rubric()))
        if sys.argv[1:]:
            path = Path(sys.argv[1])
        evidence = gather_submission(Path(folder), "nobody", prompt_words=900)
        judges = {
            "dummy": dummy_verdict,
            "random": partial(random_verdict, 0),
            "checks": partial(check_verdict, evidence),
        }
        for name, verdict_of in judges.items():
            started = time.process_time()
            rubric = load_rubric(path)
            to_json(JudgeOutput(name, judge_leaves(rubric, verdict_of)).to_json())
            seconds = time.process_time() - started
            count = len(list(leaves(rubric)))
            print(f"rubric: {count} leaves, judge {name}: {seconds:.4f} CPU s (below 2)")


if __name__ == "__main__":
    main()
