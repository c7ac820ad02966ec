"""Plans of letters in words, such as `plank 9, post 8, post 10`, and the calls that they mean."""

import re

EXAMPLES = {
    "T": "post 9, post 9, plank 9",
    "U": "plank 9, post 8, post 10, post 8, post 10",
    "I": "plank 9, post 9, post 9, plank 9",
    "L": "plank 9, post 8, post 8",
}
TYPES = {"post": "b13", "plank": "b31", "cube": "b11"}
MOST = 10  # steps of a plan
COLUMNS = range(1, 19)  # a plank needs a column on each side

STEP = re.compile(r"\b(post|plank|cube)s?\s*(?:at\s*|column\s*)*(\d+)\b", re.IGNORECASE)
CALL = re.compile(r"drop_block\(\s*['\"](b11|b13|b31)['\"]\s*,\s*(\d+)\s*\)")
BLOCK = re.compile(r"```([^`]+)```")


def examples_for(letter: str) -> list[str]:
    """Return three letters with an example, without the letter that is asked for."""
    return [example for example in EXAMPLES if example != letter][:3]


def plan_of(answer: str, letter: str) -> str:
    """Return the steps of the letter's line in an answer; without one, those of the last line with steps."""
    lines = [line for line in answer.splitlines() if STEP.search(line)]
    of_letter = [line for line in lines if line.lstrip(" -*#").startswith(f"{letter}:")]
    steps = STEP.findall((of_letter or lines or [""])[-1])
    return ", ".join(f"{name.lower()} {column}" for name, column in steps[:MOST] if int(column) in COLUMNS)


def calls_of(plan: str) -> str:
    """Write a plan as calls."""
    return "\n".join(f"drop_block('{TYPES[name]}', {column})" for name, column in STEP.findall(plan))


def count_calls(answer: str) -> int:
    """Count the calls in the last code block of an answer."""
    blocks = BLOCK.findall(answer)
    return len(CALL.findall(blocks[-1])) if blocks else 0
