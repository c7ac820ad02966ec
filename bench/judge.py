"""Measure a grading by a model: tokens, cacheable prefix, price, and our CPU time.

Run as `python bench/judge.py`. One scripted endpoint, in a process of its own, answers every call in the form that it
asks for and counts a token for each four characters, so that figures are of our prompts and not of a model. The rubrics
are PaperBench's rice and semantic-self-consistency where they lie in the reference folder, else the example paper's;
paper (80 kB) and submissions (12 and 120 files of 4 kB, of which ten are shown for a leaf) have usual sizes, and their
words are made up, but for the criteria that a file says it implements. The ten of a leaf are those with the most words
of its criterion, rare words counting more (`words`, TF-IDF); or five that it shares with its neighbours below the same
node and any five (`half`); or any ten, the worst case for a cache (`any`).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from math import log
from pathlib import Path
from typing import Any

from pcgeval.core.files import sha256_text, write_text
from pcgeval.formats.params import Model
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import JudgeSettings

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
CHOICES = ("words", "half", "any")


class Endpoint(BaseHTTPRequestHandler):
    """Answers, counts tokens, and knows how much of a prompt began an earlier one."""

    protocol_version = "HTTP/1.1"
    earlier: tuple[str, ...] = ()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = "\n".join(message["content"] for message in body["messages"])
        shown = re.search(r"<file \w+>\n(.+)\n(.+)", prompt)
        text = GRADE.format(shown[1], shown[2]) if shown else ""
        if "Name at most ten" in prompt or "at most ten as they stand" in prompt:
            offered = re.findall(r"^part-\d/file-\d+\.py$", prompt, re.MULTILINE)
            criterion = prompt.rpartition("Criterion: ")[2].rpartition("\n\nWhich of ")[0]
            _, paper, files, way, *_ = self.path.split("/")
            if way == "words":
                words, asked = words_by_file(paper, int(files)), words_of(criterion)
                in_files = Counter(word for name in offered for word in words[name])
                idf = {word: log(len(offered) / number) for word, number in in_files.items()}
                shared = {name: sum(idf[word] for word in words[name] & asked) for name in offered}
                offered.sort(key=shared.__getitem__, reverse=True)
            else:
                offered.sort(key=lambda name: sha256_text(name + criterion))
            if way == "half":
                above = above_criteria(paper)[criterion]
                shared = sorted(offered, key=lambda name: sha256_text(name + above))[:5]
                offered = [*shared, *(name for name in offered if name not in shared)]
            text = json.dumps({"files": offered[:10] or ["README.md"]})
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
        content = json.dumps({"id": "1", "model": body["model"], "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
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


def criteria(value: Any) -> list[str]:
    """Return the criteria of a rubric's leaves, in its order."""
    below = [text for task in value["sub_tasks"] for text in criteria(task)]
    return below or [value["requirements"].strip()]


@cache
def above_criteria(paper: str) -> Mapping[str, str]:
    """Return the criterion of the node above each node, by the criterion below."""
    found: dict[str, str] = {}
    nodes = [rubric_of(paper)]
    for node in nodes:  # grows by those below
        nodes += [task for task in node["sub_tasks"] if task["sub_tasks"]]
        found |= {
            task["requirements"].strip(): node["requirements"] for task in node["sub_tasks"] if not task["sub_tasks"]
        }
    return found


def program_files(paper: str, files: int) -> dict[str, str]:
    """Return the programs of a submission: each implements the same number of criteria that follow one another."""
    texts = criteria(rubric_of(paper))
    programs = {}
    for number in range(files):
        part = texts[number * len(texts) // files : max((number + 1) * len(texts) // files, 1)]
        text = f"# {number}\n" + "".join(f"# {' '.join(text.split())}\n" for text in part)[:3_000]
        programs[f"part-{number % 7}/file-{number}.py"] = text + SENTENCE * ((4_000 - len(text)) // len(SENTENCE))
    return programs


def words_of(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.casefold()))


@cache
def words_by_file(paper: str, files: int) -> Mapping[str, frozenset[str]]:
    return {name: words_of(text) for name, text in program_files(paper, files).items()}


def write_inputs(folder: Path, paper: str, files: int) -> None:
    """Write a paper and a submission whose reproduce.sh was run."""
    target = folder / "papers" / paper
    write_text(target / "rubric.json", json.dumps(rubric_of(paper)))
    write_text(target / "paper.md", "".join(f"{number} {SENTENCE}" for number in range(930)))
    for name, text in program_files(paper, files).items():
        write_text(folder / "submission" / name, text)
    write_text(folder / "submission/README.md", SENTENCE)
    write_text(folder / "submission/results.csv", "seed,reward\n1,2\n")
    write_text(folder / "submission/reproduce.log.creation_time", "0")  # so that results.csv is of this run
    write_text(folder / "submission/reproduce.log", "".join(f"{number} {SENTENCE}" for number in range(100)))


def report(folder: Path, paper: str, url: str, name: str) -> None:
    """Grade the submission, and print the figures."""
    started, cpu = time.perf_counter(), time.process_time()
    model = Model(backend="openai", name="o3-mini", base_url=url)
    settings = JudgeSettings(judge="simple", model=model, papers_dir=folder / "papers")
    output = grade_submission(folder / "submission", paper, settings, calls=CallFiles(log=folder / "log"))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - started
    total, leaves = output.token_usage.total, output.num_leaf_nodes
    print(f"{name}.leaves\t{leaves}, {output.num_invalid_leaf_nodes} ungraded, {total.calls} calls in {wall:.0f} s")
    print(f"{name}.input_tokens\t{total.prompt_tokens}")
    print(f"{name}.cacheable\t{total.cached_tokens / total.prompt_tokens:.1%} of the input (at least 85 %)")
    print(f"{name}.price\t{output.cost:.2f} US dollars with o3-mini; real answers are longer")
    print(f"{name}.cpu_per_leaf\t{cpu / leaves:.3f} CPU s (at most 0.05)", flush=True)


def main() -> None:
    server = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().strip() if server.stdout else ""
        for choice, files, paper in product(CHOICES, FILES, PAPERS):
            with tempfile.TemporaryDirectory() as name:
                write_inputs(Path(name), paper, files)
                address = f"http://127.0.0.1:{port}/{paper}/{files}/{choice}/v1"
                report(Path(name), paper, address, f"judge.{paper}.{files}_files.{choice}")
    finally:
        server.terminate()
        server.wait()


def serve() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
