"""Replace python-dotenv where a program uses it without naming it in a requirements.txt: there are no settings."""  # noqa: INP001

from __future__ import annotations


def find_dotenv(*_: object, **__: object) -> str:
    """Return the empty text of python-dotenv for no file."""
    return ""


def dotenv_values(*_: object, **__: object) -> dict[str, str]:
    """Return no settings."""
    return {}


def load_dotenv(*_: object, **__: object) -> bool:
    """Add no settings to the environment."""
    return False
