"""Measure a grading by a model: tokens, cacheable prefix, price, and our CPU time.

Run as `python bench/judge.py`. One scripted endpoint, in a process of its own, answers every call in the form that it
asks for and counts a token for each four characters, so that figures are of our prompts and not of a model. The rubrics
are PaperBench's rice and semantic-self-consistency where they lie in the reference folder, else the example paper's;
paper (80 kB) and submissions (12 and 120 files of 4 kB, of which ten are shown for a leaf) have usual sizes, and their
words are made up. The ten are any for each leaf, the worst case for a cache; or five of them are the same for all
leaves below one node, as a model may choose for criteria about one part of a paper.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pcgeval.core.files import sha256_text, write_text
from pcgeval.core.params import Model
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import JudgeSettings
from pcgeval.rubric.grades import JudgeOutput

ROOT = Path(__file__).parents[1]
REFERENCE = Path(os.environ.get("PCGEVAL_REFERENCE", ROOT.parent / "shared" / "reference"))
EXAMPLE = ROOT / "data/papers/block-letters"
PAPERS = ("rice", "semantic-self-consistency")
GRADE = (
    "# Expectations\nIt is there.\n# Reality\nIt is there, as the criterion asks.\n# Evidence\nFile: {}\n```\n{}\n```\n"
    "# Score\n1\n"
)
SENTENCE = "The agent is trained for a million steps, and its reward is the mean of five seeds.\n"
FILES = (12, 120)  # of a small and of a large submission


class Endpoint(BaseHTTPRequestHandler):
    """Answers, counts tokens, and knows how much of a prompt began an earlier one."""

    protocol_version = "HTTP/1.1"
    earlier: tuple[str, ...] = ()
    above: Mapping[str, str] = {}  # the node above a leaf, by the leaf's criterion

    def do_GET(self) -> None:
        self.send(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = "\n".join(message["content"] for message in body["messages"])
        shown = re.search(r"<file \w+>\n(.+)\n(.+)", prompt)
        text = GRADE.format(shown[1], shown[2]) if shown else ""
        if "Name at most ten" in prompt or "at most ten as they stand" in prompt:
            offered = re.findall(r"^part-\d/file-\d+\.py$", prompt, re.MULTILINE)
            criterion = prompt.rpartition("Criterion: ")[2].rpartition("\n\nWhich of ")[0]
            chosen = sorted(offered, key=lambda name: sha256_text(name + criterion))
            if self.path.startswith("/related"):
                chosen = [*sorted(offered, key=lambda name: sha256_text(name + self.above[criterion]))[:5], *chosen]
            text = json.dumps({"files": list(dict.fromkeys(chosen))[:10] or ["README.md"]})
        elif "Copy the number" in prompt:
            text = json.dumps({"valid_score": True, "score": 1, "explanation": "It is there."})
        # the longest prefix that an earlier prompt had, in characters
        common = (
            bisect_left(range(len(prompt)), 1, key=lambda at, other=other: prompt[: at + 1] != other[: at + 1])
            for other in Endpoint.earlier
        )
        cached = max(common, default=0)
        Endpoint.earlier = (*Endpoint.earlier[-8:], prompt)
        usage = {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": len(text) // 4,
            "prompt_tokens_details": {"cached_tokens": cached // 4},
        }
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self.send(200, {"id": "1", "model": body["model"], "choices": [choice], "usage": usage})

    def send(self, status: int, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def rubric_of(paper: str) -> Any:
    """Return a paper's rubric as JSON values; without the reference folder, that of the example paper."""
    rubric = REFERENCE / "paperbench/papers" / paper / "rubric.json"
    return json.loads((rubric if rubric.is_file() else EXAMPLE / "rubric.json").read_text())


def nodes_above(value: Any) -> dict[str, str]:
    """Return the criterion of the node above each leaf, by the leaf's criterion."""
    above: dict[str, str] = {}
    for task in value["sub_tasks"]:
        above |= nodes_above(task) if task["sub_tasks"] else {task["requirements"].strip(): value["requirements"]}
    return above


def write_inputs(folder: Path, paper: str, files: int) -> None:
    """Write a paper and a submission whose reproduce.sh was run."""
    target = folder / "papers" / paper
    write_text(target / "rubric.json", json.dumps(rubric_of(paper)))
    write_text(target / "paper.md", "".join(f"{number} {SENTENCE}" for number in range(930)))
    for number in range(files):
        write_text(folder / f"submission/part-{number % 7}/file-{number}.py", f"# {number}\n" + SENTENCE * 48)
    write_text(folder / "submission/README.md", SENTENCE)
    write_text(folder / "submission/results.csv", "seed,reward\n1,2\n")
    write_text(folder / "submission/reproduce.log.creation_time", "0")  # so that results.csv is of this run
    write_text(folder / "submission/reproduce.log", "".join(f"{number} {SENTENCE}" for number in range(100)))


def graded(folder: Path, paper: str, url: str) -> JudgeOutput:
    """Grade the submission."""
    settings = JudgeSettings(
        judge="simple",
        model=Model(backend="openai", name="o3-mini", base_url=url),
        papers_dir=str(folder / "papers"),
    )
    return grade_submission(folder / "submission", paper, settings, calls=CallFiles(log=folder / "log"))


def report(folder: Path, paper: str, url: str, name: str) -> None:
    """Print the figures of one whole grading."""
    started, cpu = time.perf_counter(), time.process_time()
    output = graded(folder, paper, url)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - started
    total, leaves = output.token_usage.total, output.num_leaf_nodes
    cost = output.cost or 0.0
    print(
        f"{name}.leaves\t{leaves}, {output.num_invalid_leaf_nodes} without a grade, {total.calls} calls in {wall:.0f} s"
    )
    print(f"{name}.input_tokens\t{total.prompt_tokens}")
    print(f"{name}.cacheable\t{total.cached_tokens / total.prompt_tokens:.1%} of the input (at least 85 %)")
    print(f"{name}.price\t{cost:.2f} US dollars, {cost / leaves:.3f} a leaf, with o3-mini; real answers are longer")
    print(f"{name}.cpu_per_leaf\t{cpu / leaves:.3f} CPU s (at most 0.05)", flush=True)


def main() -> None:
    server = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().strip() if server.stdout else ""
        for files, choice in ((FILES[0], "any"), (FILES[1], "any"), (FILES[1], "related")):
            for paper in PAPERS:
                with tempfile.TemporaryDirectory() as name:
                    write_inputs(Path(name), paper, files)
                    address = f"http://127.0.0.1:{port}/{choice}/v1"
                    report(Path(name), paper, address, f"judge.{paper}.{files}_files.{choice}")
    finally:
        server.terminate()
        server.wait()


def serve() -> None:
    Endpoint.above = {leaf: node for paper in PAPERS for leaf, node in nodes_above(rubric_of(paper)).items()}
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
