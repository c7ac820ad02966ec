"""The history of the grades, so that the report can show what changed since a state of them was kept.

`data/grade_history.jsonl` is an input in git, like a recording: one line a label and team, written by
`pcgeval rubric keep` and by nothing else. So the page of a later grading says the same wherever it is made.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from pcgeval.core.files import read_text, to_json, write_text
from pcgeval.core.layout import DATA, grade_file
from pcgeval.core.params import Params
from pcgeval.core.stage_files import refusal
from pcgeval.rubric.grade_files import read_grade
from pcgeval.rubric.grades import GradeError, JudgeOutput, RubricIdentity, Share

HISTORY = DATA / "grade_history.jsonl"
NOW = "now"  # stands for the label of a grade that nobody has kept
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class KeptGrade:
    """One line of the history: a team's grade under a label; `leaves` maps paths to scores, None without a grade.

    `score` is None where no leaf was graded, and for a guess in place of a grading; `model`, `model_digest` and
    `prompt_version` are None where no model judged.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    label: str
    round: str
    team: str
    rubric: RubricIdentity
    judge: str
    model: str | None
    model_digest: str | None
    prompt_version: str | None
    score: Share | None
    leaves: Mapping[str, Share | None]


@dataclass(frozen=True)
class LeafChange:
    """A leaf whose grade is not what it was; `is_new` or `is_gone` where only one state has it at all."""

    path: str
    before: float | None
    now: float | None
    is_new: bool = False
    is_gone: bool = False


@dataclass(frozen=True)
class GradeChange:
    """The difference between two states of a team's grade; `causes` names what else differs."""

    since: str
    before: float | None
    now: float | None
    causes: tuple[str, ...]
    leaves: tuple[LeafChange, ...]

    @property
    def is_none(self) -> bool:
        """Whether every score is as it was."""
        return self.before == self.now and not self.leaves


_KEPT_GRADE: TypeAdapter[KeptGrade] = TypeAdapter(KeptGrade)


def kept_grade(output: JudgeOutput, team: str, round_: str, label: str = NOW) -> KeptGrade:
    """Return the state of a grade that the history keeps.

    Raises:
        GradeError: The grade names no rubric, so it is none that the stage `grade` wrote.
    """
    if output.rubric is None:
        raise GradeError(f"the grade of {team} has no 'rubric'. Run `dvc repro` to grade again.")
    return KeptGrade(
        label=label,
        round=round_,
        team=team,
        rubric=output.rubric,
        judge=output.judge_type,
        model=output.model,
        model_digest=output.model_digest,
        prompt_version=output.prompt_version,
        score=None if output.guess is not None else output.graded_task_tree.graded_score,
        leaves={leaf.path: leaf.graded_score for leaf in output.graded_task_tree.leaves},
    )


def read_history(root: Path = Path()) -> tuple[KeptGrade, ...]:
    """Read all kept states, the oldest first; none where there is no file.

    Raises:
        FileError: A line is not what `keep_grades` writes; the message names it.
    """
    path = root / HISTORY
    if not path.exists():
        return ()
    kept = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line:
            try:
                kept.append(_KEPT_GRADE.validate_json(line))
            except ValidationError as error:
                remedy = "Restore the file from git, or drop the line."
                raise refusal(f"{path}:{number}", error, remedy) from error
    return tuple(kept)


def keep_grades(params: Params, label: str, root: Path = Path()) -> tuple[KeptGrade, ...]:
    """Add the present grades of all teams to the history under a label and return them; nothing if none changed.

    Raises:
        GradeError: The label cannot be used or is taken, or a grade is not what its stage writes.
        FileError: A grade is missing, or the history is broken.
    """
    history = read_history(root)
    if not _LABEL.fullmatch(label):
        raise GradeError(f"{label!r:.80}: a label is 1 to 64 of A-Z a-z 0-9 . _ - and starts with none of . _ -")
    if label in {each.label for each in history} | {NOW}:
        raise GradeError(f"{label!r} is taken. Choose another label; kept grades are not overwritten.")
    present = tuple(
        kept_grade(read_grade(root / grade_file(team)), team, params.competition.round, label) for team in params.teams
    )
    latest = {(each.team, each.round): replace(each, label=label) for each in history}
    if all(latest.get((each.team, each.round)) == each for each in present):
        return ()
    lines = [to_json(asdict(each), indent=None) + "\n" for each in (*history, *present)]
    write_text(root / HISTORY, "".join(lines))
    return present


def kept_before(history: tuple[KeptGrade, ...], present: KeptGrade) -> tuple[KeptGrade, ...]:
    """Return the kept states of the same team in the same round, the oldest first."""
    return tuple(each for each in history if (each.team, each.round) == (present.team, present.round))


def changes(before: KeptGrade, now: KeptGrade) -> GradeChange:
    """Compare two states of a team's grade: leaves in the order of the present rubric, those that are gone last."""
    leaves = tuple(
        LeafChange(
            path, before.leaves.get(path), now.leaves.get(path), path not in before.leaves, path not in now.leaves
        )
        for path in {**now.leaves, **before.leaves}
        if path not in before.leaves or path not in now.leaves or before.leaves[path] != now.leaves[path]
    )
    return GradeChange(before.label, before.score, now.score, tuple(_causes(before, now)), leaves)


def _causes(before: KeptGrade, now: KeptGrade) -> list[str]:
    pairs = {
        "rubric": (before.rubric.id, now.rubric.id),
        "judge": (before.judge, now.judge),
        "model": (before.model, now.model),
        "prompts": (before.prompt_version, now.prompt_version),
    }
    found = [f"{what} {old or 'none'} → {new or 'none'}" for what, (old, new) in pairs.items() if old != new]
    if before.rubric.id == now.rubric.id and before.rubric.sha256 != now.rubric.sha256:
        found.append(f"rubric {now.rubric.id} was edited")
    if before.model == now.model and before.model_digest != now.model_digest:
        found.append(f"other bytes of the model {now.model}")
    return found
