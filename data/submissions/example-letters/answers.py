"""Read the calls of an answer, and tell how good it is."""

import re
from difflib import SequenceMatcher

CALL = re.compile(r"drop_block\(\s*['\"](b11|b13|b31)['\"]\s*,\s*(\d+)\s*\)")
BLOCK = re.compile(r"```([^`]+)```")
FEWEST = 3  # calls of a letter


def calls(answer: str) -> list[tuple[str, str]]:
    """Return the type and column of each call in the last code block."""
    blocks = BLOCK.findall(answer)
    return CALL.findall(blocks[-1]) if blocks else []


def likeness(answer: str, level: str) -> float:
    """Return the share of calls that an answer has in common with a level, from 0 to 1."""
    return SequenceMatcher(a=CALL.findall(level), b=calls(answer), autojunk=False).ratio()


def completeness(answer: str) -> float:
    """Return 1 for enough calls for a letter, and less for fewer."""
    return min(len(calls(answer)) / FEWEST, 1)
