"""The teams' submissions: one folder each below data/submissions, checked when it is read.

A submission holds `README.md`, `prompt.txt` with the token `<OBJECT>` and optionally `submission.yaml`, in which the
organiser notes the team's title, its role and whether it is disqualified.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from pcgeval.competition.layout import SUBMISSIONS
from pcgeval.errors import PcgevalError
from pcgeval.files import FileError, read_text

PLACEHOLDER = "<OBJECT>"
PROMPT_BYTES = 1_000_000  # far above any prompt within the word limit; a larger file is a mistake or an attack
# the characters that the competition's qualification rules allow, besides white space and the placeholder
_ALLOWED = re.compile("[A-Za-z0-9 ~/\\\\+,\\-*'\"`.!@#$%^&()_=\\[\\]{}|<>:;?\u2018\u2019\u201c\u201d\u2014\\s]*")
_SINGLE = re.compile(_ALLOWED.pattern.removesuffix("*"))


class SubmissionError(PcgevalError):
    """A submission is missing, incomplete or unreadable."""


class _Notes(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str | None = None
    role: Literal["participant", "baseline"] = "participant"
    disqualified: str | None = None


@dataclass(frozen=True)
class Submission:
    """One team's submission as it will be run."""

    team: str
    title: str
    role: Literal["participant", "baseline"]
    disqualified: str | None
    prompt: str

    @property
    def prompt_length(self) -> int:
        """Length of the prompt in characters: equal scores are ranked by it, the shorter first."""
        return len(self.prompt)

    def prompt_for(self, letter: str) -> str:
        """Return the prompt with every placeholder replaced by the letter."""
        return self.prompt.replace(PLACEHOLDER, letter)


def load_submission(folder: Path) -> Submission:
    """Read a team's folder; its name is the team.

    Raises:
        SubmissionError: The folder, the prompt or the notes are missing or unreadable.
    """
    if not folder.is_dir():
        raise SubmissionError(
            f"{folder}: team {folder.name!r} has no submission there. "
            "Add the folder, or take the team out of params.yaml."
        )
    notes = _load_notes(folder / "submission.yaml")
    return Submission(
        team=folder.name,
        title=notes.title or folder.name,
        role=notes.role,
        disqualified=notes.disqualified,
        prompt=_load_prompt(folder / "prompt.txt"),
    )


def load_submissions(teams: tuple[str, ...], root: Path = SUBMISSIONS) -> dict[str, Submission]:
    """Read the submissions of all teams, in the order of params.yaml."""
    return {team: load_submission(root / team) for team in teams}


def prompt_findings(prompt: str, words: int) -> list[str]:
    """Return what the qualification rules object to in a prompt, a sentence each; empty if nothing.

    Args:
        prompt: The whole prompt.
        words: The most words that it may have; words are separated by white space.
    """
    findings = []
    if PLACEHOLDER not in prompt:
        findings.append(f"the prompt lacks the token {PLACEHOLDER}, so every letter would get the same text")
    if (count := len(prompt.split())) > words:
        findings.append(f"the prompt has {count} words; {words} are allowed")
    if strange := sorted(set(_strange_characters(prompt))):
        shown = " ".join(f"U+{ord(character):04X}" for character in strange[:10])
        findings.append(f"the prompt has {len(strange)} characters that the rules do not allow: {shown}")
    return findings


def _strange_characters(prompt: str) -> list[str]:
    return [] if _ALLOWED.fullmatch(prompt) else [each for each in set(prompt) if not _SINGLE.fullmatch(each)]


def _load_prompt(path: Path) -> str:
    if path.is_symlink():
        raise SubmissionError(f"{path}: is a link. Put the prompt itself there.")
    try:
        if path.stat().st_size > PROMPT_BYTES:
            raise SubmissionError(f"{path}: over {PROMPT_BYTES} bytes. A prompt has at most some hundred words.")
        prompt = read_text(path)
    except OSError as error:
        raise SubmissionError(f"{path}: cannot be read ({error.strerror}). Put the team's prompt there.") from error
    except FileError as error:
        raise SubmissionError(str(error)) from error
    if not prompt.strip():
        raise SubmissionError(f"{path}: is empty. Put the team's prompt there.")
    return prompt


def _load_notes(path: Path) -> _Notes:
    if not path.exists():
        return _Notes()
    try:
        return _Notes.model_validate(yaml.safe_load(read_text(path)) or {})
    except (FileError, yaml.YAMLError, ValidationError) as error:
        raise SubmissionError(
            f"{path}: {' '.join(str(error).split())}. Known keys: title, role (participant or baseline), disqualified."
        ) from error
