"""Forgeries of an evaluated competition, each with all that follows from it, are found and named by the audit."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from handed_in_for_tests import package_index
from tampered_competition import (
    FILTERED,
    H1,
    LEVEL,
    append,
    blocks_fell,
    drop_recorded_trial,
    edit_calls,
    edit_json,
    end,
    fail,
    flag,
    hand_in,
    lock_nothing,
    look_alike,
    not_simulated,
    other_reply,
    raw,
    refuse,
    report,
    summarise,
    unreadable_recording,
)
from workspace import evaluate

from pcgeval.formats.failures import failure
from pcgeval.formats.layout import letter_file, recording_file, stage_dir, trial_file
from pcgeval.proof.audit import audit

pytestmark = pytest.mark.needs_sandbox
SERVER_FAILED = failure("server-failed", fault="the server answered 500")
TIME_OUT = failure("late-call", seconds=500)
FIGURES = {  # that a server reported, and what is said of them
    "tokens lowered": ({"output_tokens": 1}, "1 token "),
    "tokens raised": ({"output_tokens": 900}, "900 tokens"),
    "a prompt's tokens raised": ({"prompt_tokens": 9_000}, "9000 tokens"),
    "seconds raised": ({"seconds": 99.0}, "99 s"),
    "seconds lowered": ({"seconds": 0.0}, "0 s"),
}


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
        **{
            name: (partial(report, **figures), "note: beta with live, H1, reply 1", words)
            for name, (figures, words) in FIGURES.items()
        },
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
    root = Path(shutil.copytree(tampered, tmp_path / "forged", symlinks=True))
    forge(root)
    summarise(root)
    evaluate(root, since=since)
    with package_index(tmp_path / "packages"):
        result = audit(root, is_bundle=True)
    findings = [*result.faults, *map(str, result.differences), *(f"note: {note}" for note in result.notes)]
    assert any(all(word in finding for word in words) for finding in findings), findings
