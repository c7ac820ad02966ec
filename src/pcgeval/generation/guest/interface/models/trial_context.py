"""Describe a trial to its program."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter


class TrialContext:
    """One trial. Its counters are for the program to plan with; those that count are kept outside its process."""

    def __init__(
        self,
        team_name: str,
        character: str,
        trial_number: int,
        log_file_path: Path,
        model_name: str | None = None,
        local_model_base_url: str | None = None,
    ) -> None:
        """Start the program's own clock and counters."""
        self._team_name, self._character, self._trial_number = team_name, character, trial_number
        self._log_file_path = log_file_path
        self._model_name, self._local_model_base_url = model_name, local_model_base_url
        self._start_time = perf_counter()
        self._prompt_token_count = self._output_token_count = 0

    def get_team_name(self) -> str:
        """Return the name that the program gave itself."""
        return self._team_name

    def get_character(self) -> str:
        """Return the letter that is asked for."""
        return self._character

    def get_trial_number(self) -> int:
        """Return the number of the trial, from 1."""
        return self._trial_number

    def get_start_time(self) -> float:
        """Return when the trial started, in seconds on the clock of time.perf_counter."""
        return self._start_time

    def get_log_file_path(self) -> Path:
        """Return a file that the program may append to; it vanishes with the trial."""
        return self._log_file_path

    def get_output_folder_path(self) -> Path:
        """Return a folder that the program may write to; it vanishes with the trial."""
        return scratch_folder(self._team_name) / "raw" / str(self._character)

    def get_output_file_path(self) -> Path:
        """Return the name that the official package writes the answer to; here the broker takes it."""
        name = scratch_folder(self._team_name).name
        return self.get_output_folder_path() / f"{name}_{self._character}_{self._trial_number}.txt"

    def add_prompt_token_count(self, count: int) -> None:
        """Count tokens of a prompt."""
        self._prompt_token_count += count

    def add_output_token_count(self, count: int) -> None:
        """Count tokens of a reply."""
        self._output_token_count += count

    def get_total_token_count(self) -> int:
        """Return the tokens of all prompts and replies so far."""
        return self._prompt_token_count + self._output_token_count

    def get_model_name(self) -> str | None:
        """Return the name of the model that answers."""
        return self._model_name

    def get_local_model_base_url(self) -> str | None:
        """Return an address at which nobody answers: the model is reached through the interface alone."""
        return self._local_model_base_url

    def __str__(self) -> str:
        """Return everything, for a log."""
        return f"TrialContext({', '.join(f'{name[1:]}={value}' for name, value in vars(self).items())})"


def scratch_folder(team_name: str) -> Path:
    """Return the team's folder where writing is allowed, under a name that cannot lead out of it."""
    name = "".join(each if each.isalnum() or each in "-_." else "_" for each in str(team_name)[:64]).lstrip(".")
    return Path(os.environ.get("TMPDIR") or "/tmp", name or "team")  # noqa: S108 - the sandbox gives it a /tmp of its own
