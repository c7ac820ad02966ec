"""Setting apart what others wrote, so that a model can tell it from its task and nobody can write himself out of it.

Every text is enclosed by tags that carry a key, `<file 3fa9c1>` to `</file 3fa9c1>`. The key is taken from a hash of
all texts of the call and occurs in none of them, so none can hold a tag that ends it.
"""

import re
from collections.abc import Sequence

from pcgeval.core.files import sha256_json

_SHORTEST_KEY = 6  # characters; a short key costs few tokens
# How the chat templates of common models mark turns: llama.cpp takes these in a text for the marks themselves.
_MARKS = re.compile(
    r"(?:<(?=[|｜]|</?s>|/?s>|(?:start|end)_of_turn>|[be]os>|<SYS>>|</SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\]))"
)


def harmless(text: str) -> str:
    """Return a text with a space in every mark by which a chat template would end the message or begin another."""
    return _MARKS.sub(lambda mark: f"{mark.group()} ", text)


def fence_key(texts: Sequence[str], digests: Sequence[str]) -> str:
    """Return a key that occurs in no text: as much of a hash of the texts' hashes as that needs."""
    digest = sha256_json(list(digests))
    lengths = range(_SHORTEST_KEY, len(digest) + 1)
    # a text with all of a hash that depends on itself cannot be made
    return next(key for key in (digest[:length] for length in lengths) if not any(key in text for text in texts))


def fenced(name: str, key: str, text: str) -> str:
    """Return a text between its tags."""
    return f"<{name} {key}>\n{text}\n</{name} {key}>"
