"""How well judges grade: submissions that people have graded are graded again, and all leaves are compared.

The folder is laid out as PaperBench's `data/judge_eval`, which calls this JudgeEval: `PAPER/EXAMPLE/submission`, and
beside it `grading/expected_result.json`, a rubric with the grades that people gave. Each submission is graded by the
criteria of that tree, which may differ from the paper's rubric of today. A leaf to which a judge gives no grade counts
for nothing, as in PaperBench, and is named. The submission may be a folder or a tar file, as PaperBench ships it; where
there is none, an `other_submission` is graded.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pcgeval.checks.evidence import PaperEvidence
from pcgeval.core.errors import FaultsError, PcgevalError
from pcgeval.core.files import shown_folders, write_json, write_text
from pcgeval.judge import JUDGES
from pcgeval.judge.calls import CallFiles, OpenBackend
from pcgeval.judge.files import list_files
from pcgeval.judge.many import Fault, Grading, faults_before, grade_all, paper_folder
from pcgeval.judge.run import SUBMISSION, attempt
from pcgeval.judge.settings import GradingError, GradingTask, JudgeSettings
from pcgeval.llm.backends import open_backend
from pcgeval.rubric.grade_files import read_graded_tree
from pcgeval.rubric.grades import GradedTaskNode, rescored
from pcgeval.rubric.judge_figures import JudgeFigures, judge_eval_json, judge_eval_lines
from pcgeval.rubric.papers import LFS_ADVICE, is_lfs_pointer
from pcgeval.rubric.tree import TaskNode, leaves

EXPECTED = "expected_result.json"
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
    file: Path  # of people's grades
    people: GradedTaskNode  # the rubric with people's grades
    submission: Path  # its folder or tar file, which need not be there for the judges `random` and `dummy`
    others: Sequence[str]  # the names of submissions beside it, which are not graded

    @property
    def paper_id(self) -> str:
        """The paper that it attempts to reproduce."""
        return self.id.partition("/")[0]


def read_examples(folder: Path, only: Sequence[str] = ()) -> list[Example]:
    """Read the examples of a folder, or those of them with the ids in `only`.

    The file of people's grades may also lie where the folder `grading` should, and a paper with a single example need
    have no folder for it.

    Raises:
        JudgeEvalError: There are none, no one has such an id, or people's grades are missing or faulty.
    """
    papers = shown_folders(folder) if folder.is_dir() else []
    of_example = (EXPECTED, f"grading/{EXPECTED}", SUBMISSION)
    single = [paper for paper in papers if any((paper / name).exists() for name in of_example)]
    below = [place for paper in papers if paper not in single for place in shown_folders(paper)]
    places = {place.relative_to(folder).as_posix(): place for place in sorted([*single, *below])}
    unknown = [f"no example {id_!r:.200}. There: {', '.join(places)}." for id_ in only if id_ not in places]
    if unknown or not places:
        raise JudgeEvalError(folder, unknown or [f"has no examples. Lay them out as {_LAYOUT}."])
    faults, examples = [], []
    for id_ in only or places:
        try:
            examples.append(_read_example(id_, places[id_]))
        except PcgevalError as error:
            faults.append(f"{id_}: {error}")
    if faults:
        raise JudgeEvalError(folder, faults)
    return examples


def _read_example(id_: str, place: Path) -> Example:
    file = next(filter(Path.exists, (place / "grading" / EXPECTED, place / EXPECTED)), None)
    if file is None:
        raise PcgevalError(f"no grading/{EXPECTED}. Add people's grades, or grade the other examples alone.")
    if is_lfs_pointer(file):
        raise PcgevalError(f"{file} is only a pointer to Git LFS. Fetch the files: {LFS_ADVICE}.")
    submission, *others = [name for name in _SUBMISSIONS if (place / name).exists()] or [SUBMISSION]
    return Example(id_, file, read_graded_tree(file), place / submission, others)


def example_gradings(examples: Sequence[Example], settings: JudgeSettings, out: Path) -> list[Grading]:
    """Return the gradings of examples by a judge, whose files go to the folder `out`."""

    def grading(example: Example) -> Grading:
        return Grading(
            example.id,
            open=partial(_task, example, settings),
            file=out / f"{_file_name(example.id)}.json",
            inputs=lambda: (example.submission, example.file, paper_folder(example.paper_id, settings)),
        )

    return [grading(example) for example in examples]


@contextmanager
def _task(example: Example, settings: JudgeSettings) -> Iterator[GradingTask]:
    """Give a submission to be graded by the criteria of people's grades, with the checks of the paper's rubric."""
    if not JUDGES[settings.judge].reads_submission:
        yield GradingTask(example.people.to_task(), example.submission, PaperEvidence(example.submission))
        return
    with attempt(example.submission, example.paper_id, settings) as task:
        files = [file.path for file in list_files(task.folder).files]
        if not files:
            raise GradingError(f"{task.folder} has no file to be read. Put the submission there.")
        if pointer := next(filter(is_lfs_pointer, files), None):
            raise GradingError(f"{pointer} is only a pointer to Git LFS. Fetch the files: {LFS_ADVICE}.")
        checks = {leaf.id: leaf.check for leaf in leaves(task.rubric) if leaf.check}

        def checked(node: TaskNode) -> TaskNode:
            check = checks.get(node.id) if node.is_leaf else None
            return replace(node, sub_tasks=tuple(map(checked, node.sub_tasks)), check=check)

        yield replace(task, rubric=checked(example.people.to_task()))


def evaluate_judges(
    examples: Sequence[Example],
    judges: Mapping[str, JudgeSettings],
    out: Path,
    *,
    open_backend: OpenBackend = open_backend,
) -> list[JudgeFigures]:
    """Let every judge grade every example, and compare the gradings with people's.

    An evaluation that was killed goes on where it was. The budget is one for all gradings of a judge. Below `out` stand
    each grading, `JUDGE/EXAMPLE.json`, as soon as it has ended; results.json and the tables, results.md.

    Raises:
        JudgeEvalError: An example lacks what a judge needs, which is known before anything is paid for, or `out` is a
            folder with files of something else, or a grading failed.
    """
    results = out / "results.json"
    if out.exists() and not (out.is_dir() and (results.is_file() or not any(out.iterdir()))):
        raise JudgeEvalError(out, ["is no folder of earlier results. Name a new or empty folder."])
    gradings = {name: example_gradings(examples, judges[name], out / _file_name(name)) for name in judges}
    faults = list(dict.fromkeys(fault for of_judge in gradings.values() for fault in faults_before(of_judge)))
    if faults:
        raise JudgeEvalError("judge-eval", faults)
    figures: list[JudgeFigures] = []
    people = {example.id: example.people for example in examples}
    write_json(results, judge_eval_json(people, figures))
    for name, settings in judges.items():
        graded = dict(grade_all(gradings[name], CallFiles().client(settings, open_backend), title=f"{name}, "))
        faults += [f"{name}, {id_}: {output}" for id_, output in graded.items() if isinstance(output, Fault)]
        outputs = {id_: output for id_, output in graded.items() if not isinstance(output, Fault)}
        if outputs:
            by_people = {entry.id: rescored(settings.cut(entry.people)) for entry in examples}
            figures.append(JudgeFigures.of(name, outputs, by_people))
            write_json(results, judge_eval_json(people, figures))
    write_text(out / "results.md", "\n".join(judge_eval_lines(people, figures)) + "\n")
    if faults:
        raise JudgeEvalError("judge-eval", faults)
    return figures


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).lstrip(".")
