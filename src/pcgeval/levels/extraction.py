"""From a model's response to the calls in its last fenced block, as the official extractor reads it.

The patterns are those of `extractCode` in the competition's JavaScript library. They are made possessive, which
changes no match (what follows each repetition cannot be part of it) and keeps hostile text in linear time.
"""

import re

FENCED = re.compile(r"```([^`]++)```")
CALL = re.compile(r"""drop_block\(['|"]b[1|3][1|3]['|"], *+[0-9]*+\)""")


def extract_code(response: str) -> str | None:
    r"""Return the calls of the last fenced block, each on a line ended by `\n`, or None without a call.

    A block holds no backtick, so a stray one changes which fences pair up. Quotes become `'`. Malformed
    calls that the official pattern accepts (`b|3`, no column) are returned too: the conversion refuses them.
    """
    block = last_block(response)
    calls = CALL.findall(block[1]) if block else []
    return "\n".join([*calls, ""]).replace('"', "'") if calls else None


def last_block(response: str) -> re.Match[str] | None:
    """Return the last fenced block, whose group 1 is its content, or None without one."""
    last = None
    for last in FENCED.finditer(response):  # noqa: B007 - blocks pair up from the left, so the last is found last
        pass
    return last
