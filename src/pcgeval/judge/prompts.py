"""Making the three calls about a leaf from a submission, its task and its rubric."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pcgeval.judge.calls import Call, Part
from pcgeval.judge.folder import CODE, DOCUMENTS, TABLES, Contents, FoundFile, contents
from pcgeval.judge.logs import reduced
from pcgeval.judge.reading import FileText, clean, read_file
from pcgeval.judge.subject import Subject
from pcgeval.judge.templates import filled, phrase, prompt_version
from pcgeval.rubric.tree import CODE_DEVELOPMENT, RESULT_ANALYSIS, TaskNode, leaves, prior_nodes
from pcgeval.submissions.reproduction import REPRODUCE_LOG, REPRODUCE_SCRIPT

MAX_PICKED = 10  # files, as in PaperBench
RANK_TOKENS, GRADE_TOKENS, PARSE_TOKENS = 256, 400, 256  # of the answers
MAX_ENUMERATED = 200  # names that the schema of an answer lists; with more, or longer ones, it takes any text
MAX_ENUMERATED_CHARACTERS = 15_000  # well below the 20 000 that a whole schema may have
MAX_EARLIER = 40  # criteria before the one to be judged that are shown
MAX_SUB_CRITERIA = 100
_FILES_KEPT = 64  # texts in memory, each of at most half a megabyte


class Prompts:
    """All that can be asked about one submission; what the calls share is made once."""

    def __init__(self, subject: Subject, rubric: TaskNode) -> None:
        """Look through the submission, and read what stays the same from leaf to leaf."""
        self.subject = subject
        self._rubric = rubric
        self.contents: Contents = contents(subject.folder)
        is_paper = subject.kind == "paper"
        self._task_parts = tuple(
            Part(name, clean(text).strip(), tail=0.1, weight=weight)
            for name, text, weight in (
                ("paper" if is_paper else "rules", subject.paper, 3.0),
                ("addendum", subject.addendum, 1.0),
                ("notes", subject.judge_addendum, 1.0),
            )
            if text.strip()
        )
        self._script = Part(REPRODUCE_SCRIPT, self._script_text(), tail=0.3, weight=1.5)
        log = "(reproduce.sh was not run)" if subject.reproduce_log is None else reduced(subject.reproduce_log)
        self._log = Part(REPRODUCE_LOG, log, tail=0.7, weight=4.0)
        self.file_text = lru_cache(_FILES_KEPT)(self._file_text)

    def offered(self, leaf: TaskNode) -> tuple[FoundFile, ...]:
        """Return the files that a leaf of its category may be judged by, sorted by name.

        Development and Execution are judged by documents and code, Result Analysis by documents and by tables that
        reproduce.sh wrote, and a node that stands for several criteria by all of these (PaperBench). An entry in the
        competition is judged by all its files.
        """
        category = leaf.task_category
        if self.subject.kind == "competition":
            return self.contents.files
        return tuple(
            file
            for file in self.contents.files
            if file.name not in (REPRODUCE_SCRIPT, REPRODUCE_LOG)
            and (
                file.suffix in DOCUMENTS
                or (file.suffix in CODE and category != RESULT_ANALYSIS)
                or (file.suffix in TABLES and category in (RESULT_ANALYSIS, None) and self.is_fresh(file))
            )
        )

    def is_fresh(self, file: FoundFile) -> bool:
        """Whether reproduce.sh may have written a file: it ran, and the file is no older than that run."""
        if self.subject.reproduce_log is None:
            return False
        return self.subject.log_written is None or file.written >= self.subject.log_written

    def rank(self, leaf: TaskNode, files: Sequence[FoundFile]) -> Call:
        """Ask which of the files to look at."""
        names = [file.name for file in files]
        parts = (Part("files", "\n".join(names), tail=0.3, weight=1.0), *self._fixed(leaf, ""))
        return Call("rank", leaf.path, 0, 0, prompt_version(), parts, _files_schema(names), RANK_TOKENS)

    def grade(self, leaf: TaskNode, files: Sequence[FoundFile], vote: int, attempt: int, problem: str) -> Call:
        """Ask for Expectations, Reality and Score, shown the files in the order of their rank."""
        shown = [
            Part("file", _with_name(file, self.file_text(file)), tail=0.3, weight=6.0 / (1 + place))
            for place, file in enumerate(files)
        ]
        shown = shown or [Part("file", "(the submission has no file of the kinds that count here)", weight=1.0)]
        parts = (*self._task_parts, *self._criteria(leaf), *self._run(leaf), *shown, *self._fixed(leaf, problem))
        return Call("grade", leaf.path, vote, attempt, prompt_version(), parts, None, GRADE_TOKENS)

    def parse(self, leaf: TaskNode, answer: str, vote: int, attempt: int, problem: str) -> Call:
        """Ask for the verdict that an answer holds."""
        parts = (Part("answer", clean(answer), tail=0.8, weight=1.0), *self._fixed(leaf, problem, "parse"))
        schema = _verdict_schema(leaf)
        return Call("parse", leaf.path, vote, attempt, prompt_version(), parts, schema, PARSE_TOKENS)

    def _fixed(self, leaf: TaskNode, problem: str, scale: str = "scale") -> tuple[Part, ...]:
        """Return our own words, which are never cut."""
        return (
            Part("about", phrase(f"about {self.subject.kind}")),
            Part("criterion", leaf.requirements.strip()),
            Part("question", phrase(self._question(leaf))),
            Part("scale", phrase(f"{'continuous' if is_continuous(leaf) else 'binary'} {scale}")),
            Part("problem", filled(phrase("retry"), {"problem": problem}) if problem else ""),
        )

    def _question(self, leaf: TaskNode) -> str:
        if is_continuous(leaf):
            return "question whole"
        if self.subject.kind == "competition" or leaf.task_category is None:
            return "question entry"
        return f"question {leaf.task_category}"

    def _criteria(self, leaf: TaskNode) -> tuple[Part, ...]:
        """Return what the rubric says before this criterion, and the parts of a criterion that has any."""
        before = prior_nodes(self._rubric, leaf.path)
        if len(before) > MAX_EARLIER:
            before = (before[0], *before[1 - MAX_EARLIER :])
        texts = {
            "earlier-criteria": [_one_line(task) for task in before],
            "sub-criteria": [_one_line(each) for task in leaf.merged for each in leaves(task)][:MAX_SUB_CRITERIA],
        }
        return tuple(Part(name, "\n".join(lines), tail=0.7, weight=1.0) for name, lines in texts.items() if lines)

    def _run(self, leaf: TaskNode) -> tuple[Part, ...]:
        """Return reproduce.sh and what it printed, where they count: the log says nothing about mere code."""
        if self.subject.kind == "competition" or self.subject.code_only:
            return ()
        return (self._script,) if leaf.task_category == CODE_DEVELOPMENT else (self._script, self._log)

    def _script_text(self) -> str:
        found = read_file(self.subject.folder / REPRODUCE_SCRIPT)
        return f"({REPRODUCE_SCRIPT}: {found.note})\n{found.text}" if found.note else found.text

    def _file_text(self, file: FoundFile) -> FileText:
        return read_file(file.path)


def is_continuous(leaf: TaskNode) -> bool:
    """Whether a leaf stands for several criteria, so that it may be met in part."""
    return bool(leaf.merged)


def _with_name(file: FoundFile, text: FileText) -> str:
    return f"{file.name}{f' ({text.note})' if text.note else ''}\n{text.text.rstrip()}"


def _one_line(task: TaskNode) -> str:
    return f"- {' '.join(task.requirements.split())}"


def _files_schema(names: Sequence[str]) -> dict[str, Any]:
    name: dict[str, Any] = {"type": "string"}
    if len(names) <= MAX_ENUMERATED and sum(map(len, names)) <= MAX_ENUMERATED_CHARACTERS:
        name["enum"] = list(names)
    files = {"type": "array", "items": name, "minItems": 1, "maxItems": MAX_PICKED}
    return _object_schema({"files": files})


def _verdict_schema(leaf: TaskNode) -> dict[str, Any]:
    binary = {"type": "integer", "enum": [0, 1]}
    continuous = {"type": "number", "minimum": 0, "maximum": 1}
    return _object_schema(
        {
            "valid_score": {"type": "boolean"},
            "score": continuous if is_continuous(leaf) else binary,
            "explanation": {"type": "string"},
        }
    )


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
