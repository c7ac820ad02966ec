"""Markup that its contents cannot break: text is escaped wherever it enters, so nobody has to remember to do it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

# Control characters, lone surrogates, and what turns the direction of the text around it: with these a submission could
# make the page say something else than it does.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_VOID = ("meta", "input")


@dataclass(frozen=True)
class Html:
    """Text that is markup already; made by `element` and `joined` only, and from constants."""

    text: str


NOTHING = Html("")


def element(name: str, /, *content: Html | str, **attributes: str | int) -> Html:
    """Return an element with escaped contents and attributes.

    In the names of attributes a final `_` is dropped and other `_` become `-`, so that `class_` and `aria_label` work.
    """
    pairs = "".join(f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(each))}"' for key, each in attributes.items())
    return Html(f"<{name}{pairs}>" if name in _VOID else f"<{name}{pairs}>{joined(content).text}</{name}>")


def joined(parts: Iterable[Html | str]) -> Html:
    """Return the parts one after another, texts escaped."""
    return Html("".join(each.text if isinstance(each, Html) else _escaped(each) for each in parts))


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, and how long it was if some are left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters in all)"


def _escaped(text: str) -> str:
    return escape(_UNSHOWN.sub("\ufffd", text))
