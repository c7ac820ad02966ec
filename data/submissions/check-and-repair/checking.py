"""Compute what is wrong with an answer, as sentences that the model can act on."""

import re

SIZES = {"b11": (1, 1), "b13": (1, 3), "b31": (3, 1)}  # width and height
CALL = re.compile(r"drop_block\(\s*['\"](b11|b13|b31)['\"]\s*,\s*(?:x_position\s*=\s*)?(\d+)\s*\)")
FENCE = "```"
COLUMNS, ROWS = 20, 16
FEWEST, MOST = 3, 20


def faults(answer: str) -> list[str]:
    """Return the faults of an answer; none means that it can be handed in."""
    calls = CALL.findall(answer)
    sentences = []
    if answer.count(FENCE) == 1:
        sentences.append("The code block has no end; write fewer lines.")
    if answer.count(FENCE) > 2:
        sentences.append("There must be one code block.")
    if len(calls) < FEWEST:
        sentences.append(f"There are {len(calls)} drop_block lines; write {FEWEST} or more.")
    if len(calls) > MOST:
        sentences.append(f"There are {len(calls)} drop_block lines; write at most {MOST}.")
    return sentences + falls(calls)


def falls(calls: list[tuple[str, str]]) -> list[str]:
    """Drop the blocks one by one, and return a sentence for each that leaves the field or tips over."""
    tops = [0] * COLUMNS
    sentences = []
    for kind, column in calls:
        width, height = SIZES[kind]
        middle = int(column)
        columns = range(middle - width // 2, middle + width // 2 + 1)
        if columns[0] < 0 or columns[-1] >= COLUMNS:
            sentences.append(f"{kind} at {column} leaves the field.")
            continue
        base = max(tops[place] for place in columns)
        support = [place for place in columns if tops[place] == base]
        if not support[0] <= middle <= support[-1]:
            sentences.append(f"{kind} at {column} tips over; drop something under it first.")
        if base + height > ROWS:
            sentences.append(f"{kind} at {column} is over {ROWS} rows high; write fewer lines.")
        for place in columns:
            tops[place] = base + height
    return sentences
