"""Forgeries of an evaluated competition, each with all that follows from it, are found and named by the audit."""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from handed_in_for_tests import package_index
from tampered_competition import FILTERED, H1, LEVEL, edit_calls, edit_json, fail, hand_in, raw, refuse, summarise
from workspace import evaluate

from pcgeval.core.files import sha256_bytes, sha256_json
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import CALLS, Trial, letter_file, recording_file, stage_dir, trial_file
from pcgeval.proof.audit import audit
from pcgeval.submissions.packages import read_requirements

pytestmark = pytest.mark.needs_sandbox
SERVER_FAILED = failure("server-failed", fault="the server answered 500")
TIME_OUT = failure("late-call", seconds=500)
FIGURES = {  # that a server reported with the reply of a team and a trial, and what is said of them
    ("beta", "H1"): ({"output_tokens": 1}, "1 token "),
    ("beta", "H2"): ({"output_tokens": 900}, "900 tokens"),
    ("beta", "I1"): ({"prompt_tokens": 9_000}, "9000 tokens"),
    ("alpha", "H1"): ({"seconds": 99.0}, "99 s"),
    ("alpha", "H2"): ({"seconds": 0.0}, "0 s"),
}


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


def report(root: Path, team: str, trial: Trial, figures: dict[str, float]) -> None:
    """Let the server have reported other figures with a reply, in the record and in the call log."""
    _, record = raw(root, "live", team, trial)
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


def edit(name: str, change: Callable[..., object]) -> Callable[[Path], None]:
    return lambda root: edit_json(root / name, change)


def edit_record(change: Callable[..., object]) -> Callable[[Path], None]:
    return lambda root: edit_json(raw(root, "live", "gamma")[1], change)


def other_code(root: Path) -> None:
    code = trial_file(root / stage_dir("intermediate", "live", "beta"), "intermediate", "beta", H1)
    code.write_text("drop_block('b31', 9)\n")


def other_recorded_reply(root: Path) -> None:
    path = root / recording_file("recorded", "beta")
    edit_calls(path, lambda call: {**call, "reply": {**call["reply"], "text": LEVEL}})


DIVERSITY = letter_file(stage_dir("diversity", "live", "beta"), "T").as_posix()
# by the first stage that runs after a forgery: the forgery, and words that one of the audit's findings holds
FORGERIES: dict[str, dict[str, tuple[Callable[[Path], object], *tuple[str, ...]]]] = {
    "extract": {
        "a live program's answer": (partial(hand_in, model="live", team="gamma", text=LEVEL), "gamma_H_1.txt"),
        "a recorded program's answer": (drop_recorded_trial, "gamma_H_1.txt"),
        "an answer behind a recording that cannot be read": (unreadable_recording, "gamma/calls.jsonl:13"),
        "a live prompt's answer": (partial(hand_in, model="live", team="beta", text=LEVEL), "beta_H_1.txt"),
        "a rival's call that failed": (partial(fail, model="live", team="alpha", failed=FILTERED), "alpha_H_1"),
        "one that is in no log": (partial(refuse, team="alpha"), "alpha with live, H1, call 1", "no call log"),
        "a rival's trial that failed through its server": (
            partial(end, model="live", team="alpha", failed=SERVER_FAILED),
            "alpha with live, H1",
            "no result",
        ),
        "a recorded call that failed": (partial(fail, model="recorded", team="alpha", failed=FILTERED), "alpha_H_1"),
        "a time-out": (partial(end, model="live", team="gamma", failed=TIME_OUT), "gamma_H_1"),
        "a lock that its index cannot give": (
            partial(lock_nothing, team="gamma"),
            "the trials of gamma with live",
            "lock",
        ),
        "another reply handed in": (partial(other_reply, model="live", team="gamma"), "gamma_H_1.txt"),
        "an exchange hidden": (edit_record(lambda record: record["exchanges"].pop(0)), "gamma_H_1.json", "exchanges"),
        "a flag added": (partial(flag, model="live", team="beta"), "beta_H_1.json", "flags"),
        "a flag removed": (edit_record(lambda record: record.pop("flags")), "gamma_H_1.json", "flags"),
    },
    "convert": {"the code of a response": (other_code, "intermediate/live/beta")},
    "classify": {
        "blocks that fell": (partial(blocks_fell, team="beta"), "stability/live/beta/H.json"),
        "a level not simulated": (partial(not_simulated, team="alpha"), "alpha/H.json"),
        "other weights": (append("data/classifier/config.json", " "), "not the weights that pcgeval"),
    },
    "diversity": {"similarities": (partial(look_alike, team="beta"), "similarity/recorded/beta/L.json")},
    "score": {
        "a diversity": (
            edit(DIVERSITY, lambda value: value.update(diversityRate=1.0)),
            "diversity/live/beta/T.json",
            "diversityRate",
        )
    },
    "rank": {
        "a stage script": (append("stages/score.py", "# changed\n"), "stages/score.py"),
        "a module": (append("src/pcgeval/scoring/formulas.py", "# changed\n"), "scoring/formulas.py"),
        "dvc.yaml": (append("dvc.yaml", "# changed\n"), "dvc.yaml"),
    },
    "report": {
        "a total": (
            edit("results/ranking.json", lambda value: value["teams"][1].update(total="900")),
            "ranking.json",
            "total",
            "900",
        ),
        "a grade": (
            edit("data/grades/beta/grade.json", lambda value: value["graded_task_tree"].update(explanation="the best")),
            "grades/beta/grade.json",
        ),
        "a recorded reply": (other_recorded_reply, "beta_H_1"),
    },
}


def test_the_competition_itself_passes(tampered: Path) -> None:
    result = audit(tampered, is_bundle=True)
    assert result.passed(), (result.differences, result.faults)
    assert not result.not_run
    assert {team.again for team in result.teams} == {team.total for team in result.teams}


@pytest.mark.parametrize(("since", "name"), [(since, name) for since in FORGERIES for name in FORGERIES[since]])
def test_the_audit_names_a_forgery(since: str, name: str, tampered: Path, tmp_path: Path) -> None:
    forge, *words = FORGERIES[since][name]
    findings = findings_about(forge, since, tampered, tmp_path)
    assert any(all(word in finding for word in words) for finding in findings), findings


def test_figures_that_hardly_any_reply_has_are_noted(tampered: Path, tmp_path: Path) -> None:
    def forge(root: Path) -> None:
        for (team, trial), (figures, _) in FIGURES.items():
            report(root, team, Trial(trial[0], int(trial[1])), figures)

    notes = findings_about(forge, "extract", tampered, tmp_path)
    for (team, trial), (_, words) in FIGURES.items():
        assert any(f"note: {team} with live, {trial}, reply 1: " in note and words in note for note in notes), notes


def findings_about(forge: Callable[[Path], object], since: str, tampered: Path, tmp_path: Path) -> list[str]:
    """Forge a copy of the competition, with all that follows from it, and return what the audit finds and notes."""
    root = Path(shutil.copytree(tampered, tmp_path / "forged", symlinks=True))
    forge(root)
    summarise(root)
    evaluate(root, since=since)
    with package_index(tmp_path / "packages"):
        result = audit(root, is_bundle=True)
    return [*result.faults, *map(str, result.differences), *(f"note: {note}" for note in result.notes)]
