"""The commands `pcgeval rubric ...`: explain grades, compare them, and keep them for the report."""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcgeval.core.console import print_stderr
from pcgeval.core.files import to_json
from pcgeval.core.layout import GRADE_FILE, RUBRICS
from pcgeval.core.params import load_params
from pcgeval.rubric.explanation import NodeShare, explain
from pcgeval.rubric.grade_files import read_grade, read_graded_tree
from pcgeval.rubric.grades import GradeError, Verdict, grade_tree
from pcgeval.rubric.history import HISTORY, keep_grades
from pcgeval.rubric.loading import load_rubric
from pcgeval.rubric.text import explanation_lines, printable, share_lines
from pcgeval.rubric.tree import TaskNode
from pcgeval.rubric.tree import leaves as leaves_of

if TYPE_CHECKING:
    from pcgeval.rubric.agreement import Pair

_SHOWN = 20  # names of one kind


def agreement(arguments: argparse.Namespace) -> int:
    """Say how far two gradings, or two folders of gradings, agree."""
    from pcgeval.rubric.agreement import agreement_lines, pooled_agreement

    _check_settings(arguments)
    found = pooled_agreement(
        list(_pairs(arguments.a, arguments.b)),
        bootstrap=arguments.bootstrap,
        seed=arguments.seed,
        pass_at=arguments.pass_at,
    )
    text = to_json(found.to_json()) if arguments.json else "\n".join(agreement_lines(found))
    sys.stdout.write(text + "\n")
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Explain a grade: the whole tree, or one criterion from the root down to what the judge said."""
    output = read_grade(arguments.grade)
    if arguments.leaf is None:
        shares = NodeShare.of_root(output.graded_task_tree).walk()
        values = {**output.to_json(), "parts": [_share_json(each) for each in shares]}
        del values["graded_task_tree"]
        text = to_json(values) if arguments.json else "\n".join(share_lines(output))
    else:
        way = explain(output.graded_task_tree, arguments.leaf)
        leaf = {**way[-1].node.to_json(), "sub_tasks": [_share_json(each) for each in way[-1].below]}
        values = {"way": [{**_share_json(each), "requirements": each.node.requirements} for each in way], "node": leaf}
        text = to_json(values) if arguments.json else "\n".join(explanation_lines(output, way))
    sys.stdout.write(text + "\n")
    return 0


def leaves(arguments: argparse.Namespace) -> int:
    """List the criteria of a rubric that are graded, or print a form for grading them by hand."""
    folder = RUBRICS / arguments.rubric
    rubric = load_rubric(folder / "rubric.json" if folder.is_dir() else Path(arguments.rubric))
    tree = grade_tree(rubric, lambda _: Verdict(1.0, ""))  # all passed, so that each leaf has its share
    shares = {each.node.path: each.share for each in NodeShare.of_root(tree).walk()}
    found = list(leaves_of(rubric))
    if arguments.json:
        text = to_json([_leaf_json(leaf, shares[leaf.path]) for leaf in found])
    else:
        line = _form if arguments.form else _leaf_line
        text = "\n".join(line(leaf, shares[leaf.path]) for leaf in found)
    sys.stdout.write(text + "\n")
    return 0


def keep(arguments: argparse.Namespace) -> int:
    """Keep the present grades under a label, so that the report shows what changed since."""
    kept = keep_grades(load_params(), arguments.label)
    if kept:
        print_stderr(f"kept the grades of {len(kept)} teams as {arguments.label} in {HISTORY}; commit that file")
    else:
        print_stderr(f"the grades are those that were kept last: {HISTORY} stays as it is")
    return 0


def _check_settings(arguments: argparse.Namespace) -> None:
    for name, value, least, most in (
        ("--pass-at", arguments.pass_at, 0, 1),
        ("--bootstrap", arguments.bootstrap, 0, 100_000),
        ("--seed", arguments.seed, 0, 2**63),
    ):
        if not least <= value <= most:
            raise GradeError(f"{name} is {value}. Give a number from {least} to {most}.")


def _leaf_json(leaf: TaskNode, share: float) -> dict[str, Any]:
    check = None if leaf.check is None else {"name": leaf.check.name, "arguments": dict(leaf.check.arguments)}
    return {
        "path": leaf.path,
        "share": share,
        "task_category": leaf.task_category,
        "requirements": leaf.requirements,
        "check": check,
    }


def _leaf_line(leaf: TaskNode, share: float) -> str:
    by = f", check {leaf.check.name}" if leaf.check else ""
    return printable(f"{100 * share:6.2f} %  {leaf.path}  ({leaf.task_category}{by})")


def _form(leaf: TaskNode, _: float) -> str:
    """Return one entry of a form for `--judge human`: a JSON string is one of YAML too."""
    criterion = textwrap.wrap(printable(leaf.requirements), 100, initial_indent="# ", subsequent_indent="# ")
    path = json.dumps(leaf.path, ensure_ascii=False)
    return "\n".join([*criterion, f"- path: {path}", "  score:", "  author:", "  reason:"])


def _share_json(share: NodeShare) -> dict[str, Any]:
    node = share.node
    return {
        "path": node.path,
        "weight": node.weight,
        "score": node.score,
        "share": share.share,
        "contribution": share.contribution,
    }


def _pairs(a: Path, b: Path) -> Iterator["Pair"]:
    """Yield the gradings that belong together: two files, or those of the same name in two folders."""
    from pcgeval.rubric.agreement import Pair

    if a.is_dir() != b.is_dir():
        raise GradeError(f"{a} and {b}: give two files or two folders.")
    if not a.is_dir():
        yield Pair("", read_graded_tree(a), read_graded_tree(b))
        return
    in_a, in_b = _grade_files(a), _grade_files(b)
    for folder, missing in ((b, in_a.keys() - in_b.keys()), (a, in_b.keys() - in_a.keys())):
        if missing:
            raise GradeError(f"{folder}: has no grading of {', '.join(sorted(missing)[:_SHOWN])}. Add it.")
    if not in_a:
        raise GradeError(f"{a}: has no gradings (NAME.json or NAME/{GRADE_FILE}).")
    for name in sorted(in_a):
        yield Pair(name, read_graded_tree(in_a[name]), read_graded_tree(in_b[name]))


def _grade_files(folder: Path) -> dict[str, Path]:
    found = {path.stem: path for path in folder.glob("*.json")}
    return found | {path.parent.name: path for path in folder.glob(f"*/{GRADE_FILE}")}
