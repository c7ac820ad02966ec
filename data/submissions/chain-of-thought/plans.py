"""Plans of shapes in words, such as `post 8, post 10, plank 9`: read them, and compute whether they stand."""

import re
from typing import NamedTuple

SIZES = {"post": (1, 3), "plank": (3, 1), "cube": (1, 1)}  # width and height
NAMES = {"b13": "post", "b31": "plank", "b11": "cube"}
MOST = 12  # steps of a plan: an answer has 200 tokens
COLUMNS = range(1, 19)  # a plank needs a column on each side

STEP = re.compile(r"\b(post|plank|cube)s?\s*(?:at\s*|column\s*)*(\d+)\b", re.IGNORECASE)
CALL = re.compile(r"drop_block\(\s*['\"](b11|b13|b31)['\"]\s*,\s*(\d+)\s*\)")
CODE = re.compile(r"```([^`]+)```")


class Step(NamedTuple):
    name: str
    column: int

    def __str__(self) -> str:
        return f"{self.name} {self.column}"


def plan_of(answer: str) -> list[Step]:
    """Read the steps of the first line that has some."""
    steps = next(filter(None, map(STEP.findall, answer.splitlines())), [])
    return [Step(name.lower(), int(column)) for name, column in steps[:MOST] if int(column) in COLUMNS]


def level_of(answer: str) -> list[Step]:
    """Read the calls in the last code block of an answer."""
    code = CODE.findall(answer)
    return [Step(NAMES[kind], int(column)) for kind, column in CALL.findall(code[-1] if code else "")]


def falling(plan: list[Step]) -> Step | None:
    """Return the first step whose block has nothing below its middle, neither there nor on both sides of it."""
    tops = [0] * 22
    for step in plan:
        width, height = SIZES[step.name]
        columns = range(step.column - width // 2, step.column + width // 2 + 1)
        base = max(tops[column] for column in columns)
        support = [column for column in columns if tops[column] == base]
        if not support[0] <= step.column <= support[-1]:
            return step
        for column in columns:
            tops[column] = base + height
    return None
