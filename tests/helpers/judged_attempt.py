"""A toy paper and an attempt at it in the working directory, graded by a scripted model or by any other judge."""

import json
import os
from pathlib import Path

from model_servers import DIGEST, ScriptedModel

from pcgeval.core.files import write_text
from pcgeval.formats.params import Model
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.run import grade_submission
from pcgeval.judge.settings import JudgeSettings
from pcgeval.llm.protocol import ChatReply
from pcgeval.submissions.load import ReproductionRun

MODEL = Model(backend="ollama", name="m:1", digest=DIGEST, concurrency=1)
PAPER, ATTEMPT = Path("data/papers/toy"), Path("attempt")


def write_files(files, folder=ATTEMPT):
    for name, text in files.items():
        write_text(folder / name, text)


def write_paper(tree, **texts):
    """Write a rubric, and the paper's other files by their names without the ending .md."""
    write_text(PAPER / "rubric.json", json.dumps(tree))
    write_files({f"{name.replace('_', '.')}.md": text for name, text in {"paper": "# A toy", **texts}.items()}, PAPER)


def graded(backend=None, *, computer=None, calls=None, stopping=None, submission=ATTEMPT, **settings):
    """Grade the attempt; a model that is not scripted may not be asked."""

    def open_backend(_):
        assert backend is not None, "no call was to be made"
        return backend

    settings = JudgeSettings.checked({"judge": "simple", "model": MODEL, **settings})
    return grade_submission(submission, "toy", settings, computer, calls, stopping=stopping, open_backend=open_backend)


def by_id(output):
    return {leaf.id: leaf for leaf in output.graded_task_tree.leaves}


def reasons(output):
    return {leaf.id: leaf.explanation for leaf in output.graded_task_tree.leaves if not leaf.valid_score}


def graded_at(endpoint, name="m", *, computer=None, options=None, **settings):
    """Grade the attempt by a model of an endpoint of OpenAI's interface, without a call log."""
    fields = {key: settings.pop(key) for key in ("profile", "concurrency") if key in settings}
    model = Model(backend="openai", name=name, base_url=endpoint.base_url, options=options or {}, **fields)
    settings = JudgeSettings.checked({"judge": "simple", "model": model, **settings})
    return grade_submission(ATTEMPT, "toy", settings, computer, CallFiles(log=None))


class FakeComputer:
    """Makes a result, as reproduce.sh would, and counts how often it was asked to."""

    def __init__(self, exit_code=0, *, log="it ran\n", dies=False):
        self.exit_code, self.log, self.dies, self.runs = exit_code, log, dies, 0

    def reproduce(self, submission, into):
        self.runs += 1
        assert not into.resolve().is_relative_to(submission.resolve())
        for path in filter(Path.is_file, submission.iterdir()):
            write_text(into / path.name, path.read_text())
            os.utime(into / path.name, (1, 1))
        write_text(into / "results.json", '{"figure": 1}')
        if self.dies:
            raise KeyboardInterrupt
        return ReproductionRun(into, self.log, self.exit_code, None, 1.5, 1000.0)


class WrittenAnswers(ScriptedModel):
    """A backend whose answers are written in a test: for each request a text, a reply or an error."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def chat(self, request, _):
        self.requests.append(request)
        answer = self.answer(request)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, ChatReply) else ChatReply(answer, 10, 5, "stop", 0.25)
