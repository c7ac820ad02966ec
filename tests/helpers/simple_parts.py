"""A small paper with a submission, ways to count tokens, and a model whose replies are written down."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from rubric_trees import CODE, RESULT, RUN, leaf, node, rubric

from pcgeval.checks.evidence import Document, Evidence, PaperEvidence
from pcgeval.judge.settings import GradingTask, JudgeSettings
from pcgeval.judge.simple import LeafJudge
from pcgeval.llm.protocol import ChatReply

RUBRIC = rubric(
    node(
        "paper",
        1,
        leaf("mean", requirements="The code computes the mean of n random numbers."),
        leaf("run", category=RUN, requirements="reproduce.sh ran the estimate for n = 10 and 100."),
        leaf("error", category=RESULT, requirements="The error at n = 100 is about 0.1."),
        leaf("forest", requirements="The code grows a random forest."),
    )
)
FILES = {
    "README.md": "# Standard error\nRun reproduce.sh.\n",
    "estimate.py": "import random\n\n\ndef mean(n):\n    return sum(random.gauss(0, 1) for _ in range(n)) / n\n",
    "reproduce.sh": "python3 estimate.py > results.csv\n",
    "results.csv": "n,error\n10,0.3187\n100,0.1012\n",
    "data/notes.txt": "nothing\n",
}
PAPER = GradingTask(
    RUBRIC,
    Path(),
    PaperEvidence(Path(), log="n=10\nn=100\n"),
    paper="The standard error falls as 1/sqrt(n).",
)
README = Document("README.md", "read", "text")
COMPETITION = Evidence("team", 10, README, README)
CATEGORIES = {"development": CODE, "execution": RUN, "results": RESULT}


def leaf_of(name, tree=RUBRIC):
    return next(task for task in tree.sub_tasks if task.id == name)


def write_files(folder, files=FILES):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def task_of(folder, evidence=None, log=PAPER.evidence.log, log_written=None, **more):
    run = replace(PAPER.evidence, folder=folder, log=log, log_written=log_written)
    return replace(PAPER, folder=folder, evidence=evidence or run, **more)


def judge_of(folder, client=None, votes=1, code_only=False, **more):
    model = {"backend": "ollama", "name": "m:1", "options": {"temperature": 0.5}}
    settings = JudgeSettings(judge="simple", model=model, votes=votes, code_only=code_only, evidence=False)
    return LeafJudge(task_of(folder, **more), client or Scripted(), settings)


GRADE = "# Expectations\nA mean.\n# Reality\nestimate.py has it.\n# Score\n{}"
VERDICT = '{{"valid_score": true, "score": {}, "explanation": "it is there"}}'


@dataclass
class Scripted:
    """A model with written replies by kind of call: a text, a reply, an error, or a list of these to use in turn."""

    replies: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)

    def ask(self, call):
        self.calls.append(call)
        written = self.replies.get(call.kind, {"rank": "estimate.py", "grade": GRADE, "parse": VERDICT}[call.kind])
        reply = written.pop(0) if isinstance(written, list) else written
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, ChatReply):
            return reply
        return ChatReply(reply.replace("{}", "1").replace("{{", "{").replace("}}", "}"), 10, 5, "stop", 0.25)

    def knows(self, _):
        return False

    def fitted(self, call):
        return call.fitted(4096, 0)

    def kinds(self):
        return [call.kind for call in self.calls]


def sent(call, context=4096):
    """All that a call says, as one text."""
    return "\n".join(message.content for message in call.fitted(context, 0).messages)


def outside_tags(text):
    """Return a prompt without the material between its tags."""
    return re.sub(r"<(\S+ [0-9a-f]{6,64})>\n.*?\n</\1>", "", text, flags=re.DOTALL)
