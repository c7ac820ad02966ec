"""A competition to forge: two prompts and a program, a recorded model and one that a server answered, all evaluated.

And ways to forge it; what follows from a forgery is made by the stages afterwards.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import chdir
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from model_servers import DIGEST, SlowOllama
from workspace import PROGRAM, evaluate, make_workspace, write_submission

from pcgeval.core.files import sha256_bytes, to_json
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import (
    CALLS,
    SUBMISSIONS,
    Trial,
    stage_dir,
    summaries_file,
    trial_file,
)
from pcgeval.formats.params import load_params
from pcgeval.formats.trials import record_path
from pcgeval.generation.summaries import record_competition, summarise_trials
from pcgeval.submissions.load import load_submission

LETTERS, TRIALS = "HILT", 3
LEVEL = "```\ndrop_block('b31', 9)\ndrop_block('b31', 9)\n```\n"
H1 = Trial("H", 1)
FILTERED = failure("filtered", detail="the server refused the request")
TEAMS = {"alpha": {"title": "Team alpha", "role": "baseline"}, "beta": {"title": "Team beta"}, "gamma": {}}  # a program


class Builder(SlowOllama):
    """Answers with two to five blocks, which the request decides."""

    def words(self, asked: dict[str, Any], key: str) -> list[str]:  # noqa: ARG002
        """Return the reply piece by piece."""
        digits = [int(digit, 16) for digit in key[: 2 + int(key[-1], 16) % 4]]
        calls = [f"drop_block('{('b31', 'b13', 'b11')[digit % 3]}', {2 + digit})\n" for digit in digits]
        return ["```\n", *calls, "```\n"]


def make_competition(folder: Path) -> Path:
    """Evaluate the competition once on a server's replies; those of the model `recorded` are then recorded."""
    workspace = make_workspace(folder)
    shutil.rmtree(folder / "data" / "recordings")
    (folder / "data" / "recordings").mkdir()
    workspace.change("teams", TEAMS)
    workspace.change_params("competition", characters=LETTERS, trials=TRIALS)
    contact = "import socket\n\ntry:\n    socket.getaddrinfo('example.org', 80)\nexcept OSError:\n    pass\n"
    asks_twice = PROGRAM["main.py"].replace("(ctx, messages)", "(ctx, messages, 2)")
    flagged = {"main.py": contact + asks_twice}
    write_submission(folder, "gamma", flagged)
    with Builder(0.0) as server:
        asked = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": server.address, "concurrency": 2}
        models = {"recorded": {**asked, "options": {"temperature": 0.5}}, "live": asked}
        workspace.change("models", models)
        with chdir(folder):
            evaluate(Path(), until="generate")
            record_competition(load_params())
    shutil.rmtree(folder / "data" / "recordings" / "live")
    recorded = {"backend": "recorded", "name": "m:1", "digest": DIGEST, "options": {"temperature": 0.5}}
    workspace.change("models", {**models, "recorded": recorded})
    evaluate(folder)
    return folder


def summarise(folder: Path) -> None:
    """Write data/trials from what data/raw holds now, as the stage generate does."""
    params = load_params(folder / "params.yaml")
    for (model, settings), team in product(params.models.items(), params.teams):
        raw = folder / stage_dir("raw", model, team)
        submission = load_submission(folder / SUBMISSIONS / team)
        summarise_trials(folder / summaries_file(model, team), raw, submission, params.trials(), settings)


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    """Change the value of a JSON file, in the form in which the stages write it."""
    text = path.read_text()
    value = json.loads(text)
    change(value)
    path.write_text(to_json(value, indent=1 if text.startswith(("{\n", "[\n")) else None) + "\n" * text.endswith("\n"))


def edit_calls(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the calls of a recording or a call log line by line; a call that becomes None is left out."""
    calls = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(f"{to_json(call, indent=None)}\n" for call in calls if call is not None))


def raw(root: Path, model: str, team: str, trial: Trial = H1) -> tuple[Path, Path]:
    folder = root / stage_dir("raw", model, team)
    return trial_file(folder, "raw", team, trial), record_path(folder, team, trial)


def hand_in(root: Path, model: str, team: str, text: str, change: Callable[[Any], None] = lambda _: None) -> None:
    """Replace the answer of a trial in its response and its record."""
    response, record = raw(root, model, team)
    response.write_text(text)
    edit_json(record, lambda value: (value.update(response_sha256=sha256_bytes(text.encode())), change(value)))


def fail(root: Path, model: str, team: str, failed: Failure) -> list[str]:
    """Let the last call of a trial fail; return its key."""
    keys: list[str] = []

    def change(value: Any) -> None:
        last = value["exchanges"].pop()
        keys.append(last["key"])
        value["failure"] = asdict(failed)
        attempt = {"blame": "request", "status": 400, "words": failed.detail, "seconds": 1.0}
        call = {"turn": len(value["exchanges"]) + 1, "key": last["key"], "failure": asdict(failed)}
        value["failed_calls"] = [{**call, "attempts": [attempt]}]

    hand_in(root, model, team, "", change)
    return keys


def refuse(root: Path, team: str) -> None:
    """Say that the server refused a rival's request, and take its reply out of the call log."""
    keys = fail(root, "live", team, FILTERED)
    for path in (root / CALLS).glob("*.jsonl"):
        edit_calls(path, lambda call: None if call["key"] in keys else call)
