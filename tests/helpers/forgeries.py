"""Ways to forge an evaluated competition; what follows from a forgery is made by the stages afterwards."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tampered_competition import edit_calls, edit_json

from pcgeval.core.files import sha256_bytes, sha256_json
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import CALLS, Trial, letter_file, recording_file, stage_dir, trial_file
from pcgeval.formats.trials import record_path
from pcgeval.submissions.packages import read_requirements

LEVEL = "```\ndrop_block('b31', 9)\ndrop_block('b31', 9)\n```\n"
H1 = Trial("H", 1)
FILTERED = failure("filtered", detail="the server refused the request")


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


def end(root: Path, model: str, team: str, failed: Failure) -> None:
    """Say that a trial failed after its last reply."""
    hand_in(root, model, team, "", lambda value: value.update(failure=asdict(failed)))


def lock_nothing(root: Path, team: str) -> None:
    """Lock a wheel that no index has, so that nobody can run the program, and write an answer by hand."""
    program = root / "data" / "submissions" / team
    (program / "requirements.txt").write_text("example==1.0\n")
    lock = root / "data" / "locks" / f"{team}.txt"
    lock.parent.mkdir(exist_ok=True)
    digest = sha256_json(read_requirements(program))
    lock.write_text(f"# {digest}, Python\nexample==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    hand_in(root, "live", team, LEVEL)


def other_reply(root: Path, model: str, team: str) -> None:
    """Hand in another of the program's own replies: the first instead of the last."""
    _, record = raw(root, model, team)
    texts: list[str] = []
    edit_json(record, lambda value: texts.extend(exchange["reply"]["text"] for exchange in value["exchanges"]))
    hand_in(root, model, team, texts[0])


def report(root: Path, **figures: float) -> None:
    """Let the server have reported other figures with a reply, in the record and in the call log."""
    _, record = raw(root, "live", "beta")
    keys: list[str] = []

    def change(value: Any) -> None:
        keys.append(value["exchanges"][0]["key"])
        value["exchanges"][0]["reply"].update(figures)

    def change_call(call: Any) -> Any:
        if call["key"] in keys:
            call["reply"].update(figures)
        return call

    edit_json(record, change)
    for path in (root / CALLS).glob("*.jsonl"):
        edit_calls(path, change_call)


def flag(root: Path, model: str, team: str) -> None:
    edit_json(raw(root, model, team)[1], lambda value: value.update(flags=[{"kind": "other-host", "detail": "x"}]))


def drop_recorded_trial(root: Path) -> None:
    """Rewrite the answer of a recorded program in its recording, too."""
    hand_in(root, "recorded", "gamma", LEVEL)
    _, record = raw(root, "recorded", "gamma")
    path = root / recording_file("recorded", "gamma")

    def change(line: Any) -> Any:
        if (line["letter"], line["trial"]) == ("H", 1):
            line["response"] = LEVEL
            line["record"]["response_sha256"] = sha256_bytes(LEVEL.encode())
            line["sha256"] = sha256_bytes(record.read_bytes())
        return line

    edit_calls(path, change)


def unreadable_recording(root: Path) -> None:
    """Hand in another answer, and add a line to the recording that is no call."""
    hand_in(root, "recorded", "gamma", LEVEL)
    with (root / recording_file("recorded", "gamma")).open("a") as file:
        file.write("{\n")


def blocks_fell(root: Path, team: str) -> None:
    """Say of some levels that their blocks fell, in the official file and beside it."""
    stability = root / stage_dir("stability", "live", team)
    for letter in "HI":
        edit_json(
            letter_file(stability, letter),
            lambda value: [row.update(score=0.0, movingObjects=row["startingObjects"]) for row in value["raws"]],
        )
    edit_json(
        stability / "simulations.json",
        lambda value: [
            row.update(moved=[True] * len(row["moved"])) for row in value["trials"] if row["letter"] in "HI"
        ],
    )


def not_simulated(root: Path, team: str) -> None:
    stability = root / stage_dir("stability", "live", team)
    for name, entries in (("H.json", "raws"), ("simulations.json", "trials")):
        edit_json(stability / name, lambda value, entries=entries: value[entries].pop(0))
    change = {"failure": asdict(failure("simulation-crashed")), "picture_sha256": None}
    edit_json(
        stability / "trials.json",
        lambda rows: [row.update(change) for row in rows if (row["letter"], row["trial"]) == ("H", 1)],
    )


def look_alike(root: Path, team: str) -> None:
    """Say of the pictures of two letters that they are surely the letter."""
    for letter in "LT":

        def change(value: Any, letter: str = letter) -> None:
            for entry in (*value["trials"], *value["similarities"]):
                entry.update({"similarity": 1.0} if "similarity" in entry else {})
                for row in entry.get("raws", ()):
                    row["softmax_prob"] = float(row["label"] == letter)
            value["similarityRate"] = 1.0

        edit_json(letter_file(root / stage_dir("similarity", "recorded", team), letter), change)


def append(name: str, text: str) -> Callable[[Path], None]:
    return lambda root: (root / name).write_bytes((root / name).read_bytes() + text.encode())
