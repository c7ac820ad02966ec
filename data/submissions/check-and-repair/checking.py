"""What is wrong with an answer, as sentences that the model can act on."""

import re

CALL = re.compile(r"drop_block\(\s*['\"](b11|b13|b31)['\"]\s*,\s*(?:x\s*=\s*)?(\d+)\s*\)")
COLUMNS = 20
FEWEST, MOST = 3, 25


def faults(answer: str) -> list[str]:
    """Return the faults of an answer; none means that it can be handed in."""
    columns = [int(column) for _, column in CALL.findall(answer)]
    found = []
    if len(re.findall(r"```", answer)) != 2:
        found.append("There must be exactly one code block between ``` lines.")
    if len(columns) < FEWEST:
        found.append(f"There are {len(columns)} drop_block calls; a letter needs {FEWEST} or more.")
    if len(columns) > MOST:
        found.append(f"There are {len(columns)} drop_block calls; use at most {MOST}.")
    if any(column >= COLUMNS for column in columns):
        found.append(f"A column is over {COLUMNS - 1}.")
    return found
