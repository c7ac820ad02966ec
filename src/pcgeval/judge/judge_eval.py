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
from pathlib import Path

from pcgeval.checks.evidence import PaperEvidence
from pcgeval.core.errors import FaultsError, PcgevalError
from pcgeval.core.files import shown_folders, write_json, write_text
from pcgeval.judge import JUDGES
from pcgeval.judge.calls import CallFiles, OpenBackend
from pcgeval.judge.files import list_files
from pcgeval.judge.many import Fault, Grading, grade_all
from pcgeval.judge.run import SUBMISSION, attempt
from pcgeval.judge.settings import GradingError, GradingTask, JudgeSettings
from pcgeval.llm.backends import open_backend
from pcgeval.rubric.agreement import JudgeFigures, judge_eval_json, judge_eval_lines
from pcgeval.rubric.grade_files import read_graded_tree
from pcgeval.rubric.grades import GradedTaskNode, rescored
from pcgeval.rubric.papers import LFS_ADVICE, is_lfs_pointer

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

    def grading(self, settings: JudgeSettings, out: Path) -> Grading:
        """Return the grading by a judge, whose file goes to the folder `out`."""
        inputs = (self.submission, self.file, Path(settings.papers_dir, self.paper_id))
        return Grading(self.id, lambda: self.task(settings), out / f"{file_name(self.id)}.json", lambda: inputs)

    @contextmanager
    def task(self, settings: JudgeSettings) -> Iterator[GradingTask]:
        """Give the submission to be graded by the criteria of people's grades, with the checks of the paper's rubric.

        Checks are found by the ids of leaves.
        """
        criteria = self.people.to_task()
        if not JUDGES[settings.judge].reads_submission:
            yield GradingTask(criteria, self.submission, PaperEvidence(self.submission))
            return
        with attempt(self.submission, self.paper_id, settings) as task:
            for file in list_files(task.folder).files:
                if is_lfs_pointer(file.path):
                    raise GradingError(f"{file.path} is only a pointer to Git LFS. Fetch the files: {LFS_ADVICE}.")
            checks = {leaf.id: leaf.check for leaf in task.rubric.leaves if leaf.check}
            yield replace(task, rubric=criteria.map_leaves(lambda leaf: replace(leaf, check=checks.get(leaf.id))))


def read_examples(folder: Path, only: Sequence[str] = ()) -> list[Example]:
    """Read the examples of a folder, or those of them with the ids in `only`.

    The file of people's grades may also lie where the folder `grading` should, and a paper with a single example need
    have no folder for it. Raises JudgeEvalError: there are none, no one has such an id, or people's grades are faulty.
    """
    papers = shown_folders(folder) if folder.is_dir() else []
    parts = (EXPECTED, f"grading/{EXPECTED}", SUBMISSION)
    single = [paper for paper in papers if any((paper / name).exists() for name in parts)]
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


def evaluate_judges(
    examples: Sequence[Example],
    judges: Mapping[str, JudgeSettings],
    out: Path,
    *,
    open_backend: OpenBackend = open_backend,
) -> list[JudgeFigures]:
    """Let every judge grade every example, and compare the gradings with people's.

    An evaluation that was killed goes on where it was. The budget is one for all gradings of a judge. Below `out` stand
    each grading, `JUDGE/EXAMPLE.json`, as soon as it has ended; results.json and the tables, results.md. If gradings
    fail, a JudgeEvalError is raised once all this is written.
    """
    figures: list[JudgeFigures] = []
    faults: list[str] = []
    for name, settings in judges.items():
        client, outputs = CallFiles().client(settings, open_backend), {}
        gradings = [example.grading(settings, out / file_name(name)) for example in examples]
        for id_, output in grade_all(gradings, client, title=f"{name}, "):
            if isinstance(output, Fault):
                faults.append(f"{name}, {id_}: {output}")
            else:
                outputs[id_] = output
        if outputs:
            people = {example.id: rescored(settings.graded_part(example.people)) for example in examples}
            figures.append(JudgeFigures.of(name, outputs, people))
    people = {example.id: example.people for example in examples}
    write_json(out / "results.json", judge_eval_json(people, figures))
    write_text(out / "results.md", "\n".join(judge_eval_lines(people, figures)) + "\n")
    if faults:
        raise JudgeEvalError(out, faults)
    return figures


def file_name(name: str) -> str:
    """Return the name of a judge or an example as that of a file."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".")
