"""How well judges grade: submissions that people have graded are graded again, and all leaves are compared.

The folder is laid out as PaperBench's `data/judge_eval`, which calls this JudgeEval: `PAPER/EXAMPLE/submission`, and
beside it `grading/expected_result.json`, a rubric with the grades that people gave. Each submission is graded by the
criteria of that tree, which may differ from the paper's rubric of today. A leaf to which a judge gives no grade counts
for nothing, as in PaperBench, and is named. The submission may be a folder or a tar file, as PaperBench ships it; where
there is none, an `other_submission` is graded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pcgeval.checks.evidence import PaperEvidence
from pcgeval.core.errors import FaultsError, PcgevalError
from pcgeval.core.files import shown_folders, write_json, write_text
from pcgeval.judge import JUDGES
from pcgeval.judge.calls import CallFiles, OpenBackend
from pcgeval.judge.files import list_files
from pcgeval.judge.grading import grade
from pcgeval.judge.run import SUBMISSION, submission_folder, submission_task
from pcgeval.judge.settings import GradingTask, JudgeSettings
from pcgeval.llm.backends import open_backend
from pcgeval.rubric.grade_files import read_graded_tree
from pcgeval.rubric.grades import GradedTaskNode, rescored
from pcgeval.rubric.judge_figures import JudgeFigures, judge_eval_json, judge_eval_lines
from pcgeval.rubric.papers import LFS_ADVICE, is_lfs_pointer, load_paper
from pcgeval.rubric.tree import TaskNode, leaves

EXPECTED = "expected_result.json"
_OF_EXAMPLE = (SUBMISSION, EXPECTED, f"grading/{EXPECTED}")
_LAYOUT = f"PAPER/EXAMPLE/{SUBMISSION} and PAPER/EXAMPLE/grading/{EXPECTED}"
_SUBMISSIONS = tuple(  # the first that is there is graded
    f"{name}{ending}" for name in (SUBMISSION, f"other_{SUBMISSION}") for ending in ("", ".tar", ".tar.gz", ".tgz")
)


class JudgeEvalError(FaultsError):
    """Examples that cannot be graded; `faults` has what each lacks."""


@dataclass(frozen=True)
class Example:
    """A submission that people have graded."""

    id: str  # its place in the folder, such as `rice/0`
    paper_id: str  # the paper that it attempts to reproduce
    submission: Path  # its folder or tar file, which need not be there for the judges `random` and `dummy`
    expected: GradedTaskNode  # the rubric with people's grades
    others: tuple[str, ...] = ()  # the names of submissions beside it, which are not graded

    @property
    def rubric(self) -> TaskNode:
        """The criteria of people's grades."""
        return self.expected.to_task()

    def people(self, settings: JudgeSettings) -> GradedTaskNode:
        """Return people's grades of the part of the rubric that these settings leave."""
        return rescored(settings.cut(self.expected))


def read_examples(folder: Path, only: Sequence[str] = ()) -> tuple[Example, ...]:
    """Read the examples of a folder, or those of them with the ids in `only`.

    The file of people's grades may also lie where the folder `grading` should, and a paper with a single example need
    have no folder for it.

    Raises:
        JudgeEvalError: There are none, no one has such an id, or people's grades are missing or faulty.
    """
    if not folder.is_dir():
        raise JudgeEvalError(folder, [f"no folder. Name one with {_LAYOUT}."])
    places = {
        place.relative_to(folder).as_posix(): place
        for paper in shown_folders(folder)
        for place in ([paper] if any((paper / name).exists() for name in _OF_EXAMPLE) else shown_folders(paper))
    }
    if not places:
        raise JudgeEvalError(folder, [f"has no examples. Lay them out as {_LAYOUT}."])
    if unknown := [id_ for id_ in only if id_ not in places]:
        raise JudgeEvalError(folder, [f"no example {id_!r:.200}. There: {', '.join(places)}." for id_ in unknown])
    faults, examples = [], []
    for id_ in only or places:
        paper_id = id_.partition("/")[0]
        submissions = [name for name in _SUBMISSIONS if (places[id_] / name).exists()] or [SUBMISSION]
        try:
            submission = places[id_] / submissions[0]
            examples.append(Example(id_, paper_id, submission, _people(places[id_]), tuple(submissions[1:])))
        except PcgevalError as error:
            faults.append(f"{id_}: {error}")
    if faults:
        raise JudgeEvalError(folder, faults)
    return tuple(examples)


def _people(example: Path) -> GradedTaskNode:
    path = example / "grading" / EXPECTED
    path = path if path.exists() else example / EXPECTED
    if not path.exists():
        raise PcgevalError(f"no grading/{EXPECTED}. Add people's grades, or grade the other examples alone.")
    if is_lfs_pointer(path):
        raise PcgevalError(f"{path} is only a pointer to Git LFS. Fetch the files: {LFS_ADVICE}.")
    return read_graded_tree(path)


@contextmanager
def unpacked(examples: Sequence[Example]) -> Iterator[tuple[Example, ...]]:
    """Give the examples with folders in place of tar files, which are unpacked until the end of the block."""
    with ExitStack() as stack:
        folders = [stack.enter_context(submission_folder(example.submission)) for example in examples]
        yield tuple(replace(example, submission=folder) for example, folder in zip(examples, folders, strict=True))


def check_examples(examples: Iterable[Example], judges: Iterable[JudgeSettings]) -> None:
    """Raise JudgeEvalError if judges lack a submission or a paper, before anything is paid for."""
    demanding = {settings.judge: settings for settings in judges if JUDGES[settings.judge].reads_submission}
    faults: list[str] = []
    for example in examples if demanding else ():
        folder = example.submission
        files = [folder] if folder.is_file() else [file.path for file in list_files(folder).files]
        pointers = [file for file in files if is_lfs_pointer(file)]
        if not folder.exists():
            faults.append(f"{example.id}: no folder {folder}. Put it there, or grade the other examples alone.")
        elif pointers or not files:
            fault = f"{pointers[0]} is only a pointer to Git LFS" if pointers else f"{folder} has no file to be read"
            faults.append(f"{example.id}: {fault}. Fetch the files: {LFS_ADVICE}.")
        try:
            for judge, settings in demanding.items():
                load_paper(Path(settings.papers_dir), example.paper_id, needs_text=judge == "simple")
        except PcgevalError as error:
            faults.append(f"{example.id}: {error} Or name the folder of the papers in rubric.papers_dir.")
    if faults:
        raise JudgeEvalError("judge-eval", faults)


def grading_task(example: Example, settings: JudgeSettings) -> GradingTask:
    """Return an example's submission as it lies, to be graded by the criteria of people's grades.

    Leaves with the id of one of the paper's rubric have its check.
    """
    if not JUDGES[settings.judge].reads_submission:
        return GradingTask(example.rubric, example.submission, PaperEvidence(example.submission))
    task = submission_task(example.submission, example.paper_id, settings)
    checks = {leaf.id: leaf.check for leaf in leaves(task.rubric) if leaf.check}

    def checked(node: TaskNode) -> TaskNode:
        check = checks.get(node.id) if node.is_leaf else None
        return replace(node, sub_tasks=tuple(map(checked, node.sub_tasks)), check=check)

    return replace(task, rubric=checked(example.rubric))


def evaluate_judges(
    examples: Sequence[Example],
    judges: Mapping[str, JudgeSettings],
    out: Path,
    *,
    open_backend: OpenBackend = open_backend,
) -> tuple[JudgeFigures, ...]:
    """Let every judge grade every example, and compare the gradings with people's.

    An evaluation that was killed goes on where it was. The budget is one for all gradings of a judge. Below `out` stand
    each grading, `JUDGE/EXAMPLE.json`, as soon as it has ended; results.json and the tables, results.md.

    Raises:
        JudgeEvalError: An example lacks what a judge needs, or `out` is a folder with files of something else.
    """
    check_examples(examples, judges.values())
    results = out / "results.json"
    if out.exists() and not (out.is_dir() and (results.is_file() or not any(out.iterdir()))):
        raise JudgeEvalError(out, ["is no folder of earlier results. Name a new or empty folder."])
    figures: list[JudgeFigures] = []
    people = {example.id: example.expected for example in examples}
    write_json(results, judge_eval_json(people, figures))
    for name, settings in judges.items():
        outputs, client = {}, CallFiles().client(settings, open_backend)
        for example in examples:
            outputs[example.id] = grade(grading_task(example, settings), client, f"{name}, {example.id}")
            write_json(out / _file_name(name) / f"{_file_name(example.id)}.json", outputs[example.id].to_json())
        figures.append(JudgeFigures.of(name, outputs, {example.id: example.people(settings) for example in examples}))
        write_json(results, judge_eval_json(people, figures))
    write_text(out / "results.md", "\n".join(judge_eval_lines(people, figures)) + "\n")
    return tuple(figures)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).lstrip(".")
