"""Forgeries of an evaluated competition, each with all that follows from it, that `pcgeval audit` must find.

`python bench/tampering.py` prints a line for each: what was forged, and the first difference or fault that the audit
names. The tests run the same list, see tests/proof/test_forgeries.py.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from forgeries import (
    FILTERED,
    H1,
    LEVEL,
    append,
    blocks_fell,
    drop_recorded_trial,
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
    unreadable_recording,
)
from tampered_competition import edit_calls, edit_json, make_competition, summarise
from wheels_for_tests import package_index
from workspace import evaluate

from pcgeval.formats.failures import failure
from pcgeval.formats.layout import letter_file, recording_file, stage_dir, trial_file
from pcgeval.proof.audit import audit


@dataclass(frozen=True)
class Forgery:
    """A forgery, the first stage that runs after it, and words that the audit's findings must hold."""

    name: str
    forge: Callable[[Path], None]
    since: str
    words: tuple[str, ...]


FORGERIES = (
    Forgery(
        "a live program's answer", lambda root: hand_in(root, "live", "gamma", LEVEL), "extract", ("gamma_H_1.txt",)
    ),
    Forgery("a recorded program's answer", drop_recorded_trial, "extract", ("gamma_H_1.txt",)),
    Forgery(
        "an answer behind a recording that cannot be read", unreadable_recording, "extract", ("gamma/calls.jsonl:13",)
    ),
    Forgery("a live prompt's answer", lambda root: hand_in(root, "live", "beta", LEVEL), "extract", ("beta_H_1.txt",)),
    Forgery(
        "a rival's call that failed", lambda root: fail(root, "live", "alpha", FILTERED), "extract", ("alpha_H_1",)
    ),
    Forgery(
        "a rival's call that failed, and is in no log",
        lambda root: refuse(root, "alpha"),
        "extract",
        ("alpha with live, H1, call 1", "no call log"),
    ),
    Forgery(
        "a rival's trial that failed through its server",
        lambda root: end(root, "live", "alpha", failure("server-failed", fault="the server answered 500")),
        "extract",
        ("alpha with live, H1", "no result"),
    ),
    Forgery(
        "a recorded call that failed",
        lambda root: fail(root, "recorded", "alpha", FILTERED),
        "extract",
        ("alpha_H_1",),
    ),
    Forgery(
        "a time-out",
        lambda root: end(root, "live", "gamma", failure("late-call", seconds=500)),
        "extract",
        ("gamma_H_1",),
    ),
    Forgery(
        "a lock that its index cannot give",
        lambda root: lock_nothing(root, "gamma"),
        "extract",
        ("the trials of gamma with live", "lock"),
    ),
    Forgery("another reply handed in", lambda root: other_reply(root, "live", "gamma"), "extract", ("gamma_H_1.txt",)),
    Forgery(
        "an exchange hidden",
        lambda root: edit_json(raw(root, "live", "gamma")[1], lambda value: value["exchanges"].pop(0)),
        "extract",
        ("gamma_H_1.json", "exchanges"),
    ),
    *(
        Forgery(name, partial(report, **figures), "extract", ("note: beta with live, H1, reply 1", words))
        for name, figures, words in (
            ("tokens lowered", {"output_tokens": 1}, "1 token "),
            ("tokens raised", {"output_tokens": 900}, "900 tokens"),
            ("a prompt's tokens raised", {"prompt_tokens": 9_000}, "9000 tokens"),
            ("seconds raised", {"seconds": 99.0}, "99 s"),
            ("seconds lowered", {"seconds": 0.0}, "0 s"),
        )
    ),
    Forgery("a flag added", lambda root: flag(root, "live", "beta"), "extract", ("beta_H_1.json", "flags")),
    Forgery(
        "a flag removed",
        lambda root: edit_json(raw(root, "live", "gamma")[1], lambda value: value.pop("flags")),
        "extract",
        ("gamma_H_1.json", "flags"),
    ),
    Forgery("blocks that fell", lambda root: blocks_fell(root, "beta"), "classify", ("stability/live/beta/H.json",)),
    Forgery("a level not simulated", lambda root: not_simulated(root, "alpha"), "classify", ("alpha/H.json",)),
    Forgery("similarities", lambda root: look_alike(root, "beta"), "diversity", ("similarity/recorded/beta/L.json",)),
    Forgery(
        "a diversity",
        lambda root: edit_json(
            letter_file(root / stage_dir("diversity", "live", "beta"), "T"),
            lambda value: value.update(diversityRate=1.0),
        ),
        "score",
        ("diversity/live/beta/T.json", "diversityRate"),
    ),
    Forgery(
        "the code of a response",
        lambda root: trial_file(
            root / stage_dir("intermediate", "live", "beta"), "intermediate", "beta", H1
        ).write_text("drop_block('b31', 9)\n"),
        "convert",
        ("intermediate/live/beta",),
    ),
    Forgery(
        "a total",
        lambda root: edit_json(root / "results/ranking.json", lambda value: value["teams"][1].update(total="900")),
        "report",
        ("ranking.json", "total", "900"),
    ),
    Forgery(
        "a grade",
        lambda root: edit_json(
            root / "data/grades/beta/grade.json", lambda value: value["graded_task_tree"].update(explanation="the best")
        ),
        "report",
        ("grades/beta/grade.json",),
    ),
    Forgery("a stage script", append("stages/score.py", "# changed\n"), "rank", ("stages/score.py",)),
    Forgery("a module", append("src/pcgeval/scoring/formulas.py", "# changed\n"), "rank", ("scoring/formulas.py",)),
    Forgery("dvc.yaml", append("dvc.yaml", "# changed\n"), "rank", ("dvc.yaml",)),
    Forgery("other weights", append("data/classifier/config.json", " "), "classify", ("not the weights that pcgeval",)),
    Forgery(
        "a recorded reply",
        lambda root: edit_calls(
            root / recording_file("recorded", "beta"), lambda call: {**call, "reply": {**call["reply"], "text": LEVEL}}
        ),
        "report",
        ("beta_H_1",),
    ),
)


def findings(forgery: Forgery, competition: Path, folder: Path) -> list[str]:
    """Forge a copy of a competition, with all that follows from it, and return what the audit finds and notes."""
    root = shutil.copytree(competition, folder, symlinks=True)
    forgery.forge(root)
    summarise(root)
    evaluate(root, since=forgery.since)
    with package_index(folder.with_name(f"{folder.name} packages")):
        result = audit(root, is_bundle=True)
    places = [
        f"{difference.path}: {difference.place} {difference.published} -> {difference.again}"
        for difference in result.differences
    ]
    return [*result.faults, *places, *(f"note: {note}" for note in result.notes)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        competition = make_competition(Path(folder, "competition"))
        for forgery in FORGERIES:
            print(f"{forgery.name}: {findings(forgery, competition, Path(folder, forgery.name))[0]}", flush=True)


if __name__ == "__main__":
    main()
