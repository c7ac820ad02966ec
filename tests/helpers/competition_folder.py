"""A competition's folder, at first with one team, in which the stage generate asks a server of the tests."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import yaml
from dvc_command import run_in
from handed_in_for_tests import write_folder
from params_for_tests import contents, small_values
from slow_ollama import DIGEST

from pcgeval import pipeline
from pcgeval.cli.main import main
from pcgeval.formats.trials import TrialRecord, read_record
from pcgeval.pipeline import stage_exit_code

REPOSITORY = Path(__file__).parents[2]
STAGE = (str(REPOSITORY / "stages" / "generate.py"),)
PROMPT = {"prompt.txt": "Build the letter <OBJECT>."}
PROGRAM = {
    "main.py": """
from llms4pcg.competition import chat_with_llm, run_evaluation
from llms4pcg.models.trial_loop import TrialLoop

class Chatty(TrialLoop):
    @staticmethod
    def run(ctx, target_character):
        messages = [{"role": "user", "content": f"Build {target_character}"}]
        for turn in range(3):
            answer = chat_with_llm(ctx, messages)[0]
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"Again, {turn}"}]
        return answer

if __name__ == "__main__":
    run_evaluation("alpha", Chatty)
"""
}


@dataclass(frozen=True)
class CompetitionFolder:
    folder: Path

    def command(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start this Python in the folder as the leader of a process group, on the package that is tested."""
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **variables}
        command = [sys.executable, *words]
        pipes = {"stdout": PIPE, "stderr": PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=environment, start_new_session=True, **pipes)

    def generate(self) -> None:
        self.run(*STAGE)

    def run(self, *words: str, **variables: str) -> None:
        """Run the stage or a `-m pcgeval` command to its end, with some environment variables."""
        code, printed = self.run_and_fail(*words, **variables)
        assert code == 0, printed

    def run_and_fail(self, *words: str, **variables: str) -> tuple[int, str]:
        """Run the stage or a `-m pcgeval` command in this process; return its exit code and everything it printed."""
        is_command = words[:2] == ("-m", "pcgeval")
        assert is_command or words == STAGE
        command = partial(main, words[2:]) if is_command else partial(stage_exit_code, pipeline.generate)
        return run_in(self.folder, command, **variables)

    def add_team(self, team: str, work: dict[str, str]) -> None:
        write_submission(self.folder, team, work)
        self.change("teams", {**self.params()["teams"], team: {}})

    def change_model(self, **values: object) -> None:
        self.change_params("models", m={**self.params()["models"]["m"], **values})

    def change_params(self, section: str, **values: object) -> None:
        self.change(section, {**self.params().get(section, {}), **values})

    def change(self, key: str, value: object) -> None:
        (self.folder / "params.yaml").write_text(yaml.safe_dump({**self.params(), key: value}, sort_keys=False))

    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = yaml.safe_load((self.folder / "params.yaml").read_text())
        return params

    def records(self, team: str = "alpha") -> list[TrialRecord]:
        """Return the records of a team's trials in the order of their names."""
        return [read_record(path) for path in sorted(self.folder.glob(f"data/raw/m/{team}/*/{team}_*.json"))]

    def outputs(self) -> dict[str, bytes]:
        return contents(self.folder / "data" / "raw")

    def finished_calls(self) -> set[str]:
        """Return the keys of all calls that are on the disk, in finished trials or in whole lines of the call log."""
        records = [json.loads(path.read_text()) for path in self.folder.glob("data/raw/m/*/*/*.json")]
        calls = [exchange for record in records for exchange in record["exchanges"]]
        for log in self.folder.glob(".pcgeval/calls/*.jsonl"):
            calls += map(json.loads, log.read_text().split("\n")[:-1])
        return {call["key"] for call in calls}


def competition_folder(
    folder: Path, host: str, work: dict[str, str], *, letters: str = "ABCDEFGHIJ", trials: int = 4
) -> CompetitionFolder:
    """Lay out a competition of one team and one model, which is asked on a server, two calls at once."""
    write_submission(folder, "alpha", work)
    (folder / "data" / "locks").mkdir(exist_ok=True)
    options = {"temperature": 0.5}
    model = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": host, "options": options, "concurrency": 2}
    limits = {"tokens": 25_000, "seconds": 100, "prompt_words": 900}
    params = small_values(letters, trials, seed=6280, teams=["alpha"], models={"m": model}, limits=limits)
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    return CompetitionFolder(folder)


def write_submission(folder: Path, team: str, work: dict[str, str]) -> None:
    write_folder(folder / "data" / "submissions" / team, {"README.md": f"# {team}\n", **work})
