"""How long `pcgeval grade` takes for a rubric of 361 leaves, with each judge; the whole command, one figure a line.

Run as `python bench/judge.py [RUBRIC.json]`; without a file it takes PaperBench's `rice` where that lies, else a rubric
that is made up. The model judge replays a recording, which is made here with replies that are made up, and the paper
and the submission have the sizes that are usual: 80 kB of text, 120 files of 4 kB.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from pcgeval.core.files import write_text
from pcgeval.core.params import Model
from pcgeval.judge.client import CallFiles
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import JudgeSettings
from pcgeval.llm.protocol import ChatReply, ChatRequest
from rubric import made_up_rubric

ROOT = Path(__file__).parents[1]
REFERENCE = Path(os.environ.get("PCGEVAL_REFERENCE", ROOT.parent / "shared" / "reference"))
RICE = REFERENCE / "paperbench/papers/rice/rubric.json"
MODEL = {"backend": "ollama", "name": "made-up:1", "digest": "ab" * 32}
GRADE = "# Expectations\nIt is there.\n# Reality\nIt is there, in main.py, as the criterion asks.\n# Score\n1\n"
SENTENCE = "The agent is trained for a million steps, and its reward is the mean of five seeds.\n"


class MadeUpModel:
    """Answers every call in the form that it asks for."""

    def digest(self) -> str:
        return MODEL["digest"]

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        del timeout
        text = GRADE
        if request.schema is not None:
            parsed = {"valid_score": True, "score": 1, "explanation": "It is there."}
            text = json.dumps({"files": ["README.md"]} if "files" in request.schema["properties"] else parsed)
        return ChatReply(text, 3000, 60, "stop", 1.0)


def write_inputs(folder: Path, rubric: Path | None) -> None:
    """Write a paper, a submission and params.yaml with a judge that replays."""
    paper = folder / "data/papers/rice"
    write_text(paper / "rubric.json", rubric.read_text() if rubric else json.dumps(made_up_rubric()))
    write_text(paper / "paper.md", SENTENCE * 1000)
    for number in range(120):
        write_text(folder / f"submission/part-{number % 7}/file-{number}.py", f"# {number}\n" + SENTENCE * 50)
    write_text(folder / "submission/README.md", SENTENCE)
    write_text(folder / "submission/reproduce.log", SENTENCE * 100)
    shutil.copytree(ROOT / "data/submissions", folder / "data/submissions")
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["rubric"] = {"judge": "simple", "model": {**MODEL, "backend": "recorded"}}
    write_text(folder / "params.yaml", yaml.safe_dump(params))


def main() -> None:
    rubric = Path(sys.argv[1]) if sys.argv[1:] else (RICE if RICE.is_file() else None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, rubric)
        submission, kept = folder / "submission", folder / "kept.jsonl"
        started = time.perf_counter()
        output = grade_submission(
            submission,
            "rice",
            JudgeSettings(judge="simple", model=Model(**MODEL), papers_dir=str(folder / "data/papers")),
            calls=CallFiles(log=None, export=kept),
            open_backend=lambda _: MadeUpModel(),
        )
        seconds = time.perf_counter() - started
        print(f"judge.simple_asking {seconds:.2f} s for {output.token_usage.total.calls} calls that take no time")
        for judge, most in (("dummy", 2), ("random", 2), ("checks", 2), ("simple", 10)):
            command = ["pcgeval", "grade", str(submission), "--paper", "rice", "--judge", judge, "--json"]
            wall = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", *command, "--recording", str(kept)],
                cwd=folder,
                check=True,
                capture_output=True,
            )
            seconds, found = time.perf_counter() - wall, json.loads(done.stdout)
            leaves, invalid = found["num_leaf_nodes"], found["num_invalid_leaf_nodes"]
            print(f"judge.{judge} {seconds:.2f} s for {leaves} leaves, {leaves - invalid} graded (below {most})")


if __name__ == "__main__":
    main()
