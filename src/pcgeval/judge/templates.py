"""The texts that the judge's prompts are made of; they lie in `judge/prompts`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pcgeval.core.files import sha256_json

_FIELD = re.compile(r"\{([a-z]+)\}")
_SPLIT = "\n===\n"


@dataclass(frozen=True)
class Template:
    """A system message and a user message with `{fields}`."""

    system: str
    user: str


@cache
def template(kind: str) -> Template:
    """Return the template of one kind of call."""
    system, _, user = _text(kind).partition(_SPLIT)
    return Template(system.strip(), user.strip())


@cache
def phrase(name: str) -> str:
    """Return a short text of phrases.md by its heading."""
    sections = re.split(r"^## (.*)\n", _text("phrases"), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))[name].rstrip()


@cache
def prompt_version() -> str:
    """Return the beginning of the SHA-256 of all templates; a reply to other templates is no reply to these."""
    return sha256_json({name: _text(name) for name in ("rank", "grade", "parse", "phrases")})[:16]


def filled(text: str, fields: Mapping[str, str]) -> str:
    """Return a template with its fields, empty where there is none; what a field holds is never searched for fields."""
    return _FIELD.sub(lambda field: fields.get(field[1], ""), text)


def _text(name: str) -> str:
    return files("pcgeval.judge").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
