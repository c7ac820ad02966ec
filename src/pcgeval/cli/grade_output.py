"""The table of many gradings, as `pcgeval grade` and `pcgeval rubric table` print it."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pcgeval.cli.options import print_json, print_table
from pcgeval.core.console import print_stderr
from pcgeval.core.untrusted import printable_name

if TYPE_CHECKING:
    from pcgeval.rubric.grade_table import RunGrade

TableFormat = Annotated[
    Literal["csv", "json", "markdown", "latex"] | None,
    typer.Option("--format", help="Print the table for a spreadsheet, a program, a web page or a paper."),
]


def print_grade_table(
    grades: "Sequence[RunGrade]", form: Literal["csv", "json", "markdown", "latex"] | None, *, json: bool
) -> None:
    """Print the means of gradings as a table."""
    from pcgeval.report.tables import table_text
    from pcgeval.rubric.grade_table import COLUMNS, grade_table, table_cells

    rows = grade_table(grades)
    for grade in grades:
        for name in grade.run.left_out():
            print_stderr(f"{printable_name(grade.run.id)}: {printable_name(name)} is not graded")
    if json or form == "json":
        print_json({"rows": [row.to_json() for row in rows], "gradings": [grade.to_json() for grade in grades]})
        return
    cells = table_cells(rows, exact=form == "csv")
    if form is not None:
        sys.stdout.write(table_text(COLUMNS, cells, form, texts=("submission", "paper", "problems")))
        return
    print_table(COLUMNS[:-1], [row[:-1] for row in cells])
    by_problem: dict[str, list[str]] = {}
    for grade in grades:
        if grade.problem:
            by_problem.setdefault(grade.problem, []).append(printable_name(grade.run.id))
    for problem, names in by_problem.items():
        sys.stdout.write("".join(f"{name}\n" for name in names) + f"    {problem}\n")
