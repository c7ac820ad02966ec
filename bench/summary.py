"""Read the lines of the benchmarks and print the figures that were asked for, each beside its limit or its peer.

for script in bench/*.py; do python $script; done | python bench/summary.py
python bench/summary.py < lines.txt
"""

import re
import sys
from collections.abc import Iterable
from typing import NamedTuple

_LINE = re.compile(r"^([a-z][\w.-]*):?\s+(.*)$")
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


class Row(NamedTuple):
    """A figure that was asked for: the line with its name has it as the number at a place, from 0.

    `sign` is `<=` or `>=` where `limit` was asked; where none was, there is the peer alone.
    """

    figure: str
    unit: str
    sign: str = ""
    limit: float | None = None
    peer: str = ""
    place: int = 0


ROWS = (
    Row("competition.cold", "CPU s", "<=", 450, "1 394 before"),
    Row("competition.cold", "s wall", "<=", 300, "", 1),
    Row("competition.idle", "CPU s", "<=", 10, "16 before"),
    Row("competition.one_changed_submission", "CPU s", "<=", 45, "362 before"),
    Row("competition.one_more_team", "CPU s", "<=", 60, "390 before"),
    Row("competition.physics_changed", "CPU s", peer="1 377 before"),
    Row("competition.rubric_changed", "CPU s", peer="77 before"),
    Row("competition.audit", "CPU s", peer="17 before"),
    Row("competition.growth_20_teams", "times 10 teams", "<=", 2.2, "2 is linear"),
    Row("competition.growth_40_teams", "times 10 teams", "<=", 4.4, "4 is linear"),
    Row("evaluate.classified", "levels/CPU s", peer="10^9 levels in 6 230 core hours at 44.6"),
    Row("evaluate.memory_20000_rows", "MB", peer="the same for any number of rows"),
    Row("evaluate.memory_200000_rows", "MB", peer="the same for any number of rows"),
    Row("evaluate.cluster_tasks", "tasks/s", peer="174 for 1 000 workers and batches of 256"),
    Row("evaluator.standing_best_of_three", "levels/CPU s", ">=", 150, "115 to 160 before"),
    Row("evaluator.mix_best_of_three", "levels/CPU s", ">=", 80, "32 to 40 before"),
    Row("evaluator.pymunk_verdicts", "% of verdicts", ">=", 96.5, "97.3, a second run of Box2D"),
    Row("evaluator.pymunk_score_difference", "of 1", "<=", 0.028, "0.016, a second run of Box2D"),
    Row("evaluator.box2d_verdicts", "% of verdicts", ">=", 100, "97.3, a second run of Box2D"),
    Row("evaluator.box2d_score_difference", "of 1", "<=", 0, "0.016, a second run of Box2D"),
    Row("page.index", "kB", peer="7 600 with all trials in one page, before"),
    Row("similarity.vit_b16_loop", "pictures/CPU s", peer="the official script's loop"),
    Row("similarity.vit_b16_float32", "times the loop", peer="1, the loop", place=1),
    Row("similarity.vit_b16_bfloat16", "times the loop", ">=", 2, "1, the loop", 1),
    Row("similarity.vit_b16_float64", "times the pass alone", "<=", 1.25, "1, the forward pass alone", 2),
    Row("similarity.vit_b16_float32", "times the pass alone", "<=", 1.25, "1, the forward pass alone", 2),
    Row("similarity.vit_b16_bfloat16", "times the pass alone", "<=", 1.25, "1, the forward pass alone", 2),
    Row("similarity.second_fonts", "% right", ">=", 95, "never seen before training was chosen"),
    Row("similarity.second_block_letters", "% right", ">=", 90, "never seen before training was chosen"),
    Row("similarity.second_real", "% right", peer="real replies judged by eye"),
)


def main() -> None:
    """Print each line as it comes, then the table."""
    found = read_figures(sys.stdin)
    table = [("figure", "measured", "unit", "asked", "", "peer")]
    for row in ROWS:
        numbers = found.get(row.figure, ())
        value = numbers[row.place] if len(numbers) > row.place else None
        shown, met = "not measured" if value is None else f"{value:g}", ""
        if value is not None and row.limit is not None:
            met = "met" if (value <= row.limit if row.sign == "<=" else value >= row.limit) else "MISSED"
        asked = "" if row.limit is None else f"{row.sign} {row.limit:g}"
        table.append((row.figure, shown, row.unit, asked, met, row.peer))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sys.stdout.write("\n")
    for line in table:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def read_figures(lines: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Print the lines and return the numbers of each figure, by its name, in their order."""
    found: dict[str, tuple[float, ...]] = {}
    for line in lines:
        sys.stdout.write(line)
        sys.stdout.flush()
        if match := _LINE.match(line):
            found[match[1]] = tuple(float(number.replace(",", "")) for number in _NUMBER.findall(match[2]))
    return found


if __name__ == "__main__":
    main()
