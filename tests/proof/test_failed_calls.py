"""A failed call of a live model counts only with its proof, in a call log, a recording or a bundle."""

import json
import shutil

import pytest
from bundles import contents
from honest_competition import HonestCompetition
from tampered_competition import edit_calls, refuse, summarise
from workspace import evaluate

from pcgeval.cli.main import main
from pcgeval.core.files import write_bytes
from pcgeval.formats.layout import CALLS, FAILED_CALLS
from pcgeval.proof.audit import audit
from pcgeval.proof.bundle import make_bundle

NO_LOG = "no call log"


@pytest.fixture
def broken(live: HonestCompetition, monkeypatch: pytest.MonkeyPatch) -> HonestCompetition:
    """The competition with a team whose requests break the server, which is the working folder."""
    live.add_prompt("BREAK")
    live.evaluate()
    monkeypatch.chdir(live.folder)
    return live


def test_a_bundle_and_recordings_carry_the_proofs(broken, capsys):
    write_bytes(broken.folder / "b.zip", content := make_bundle(broken.folder))
    lines = [json.loads(line) for line in contents(content)[str(FAILED_CALLS)].splitlines()]
    assert {line.get("kind") for line in lines} == {None, "neutral"}
    assert not [line for line in lines if "reply" in line and line.get("kind") is None]
    assert main(["verify", "b.zip"]) == 0, capsys.readouterr().out
    assert main(["export", "recordings"]) == 0
    shutil.rmtree(".pcgeval")
    assert audit(broken.folder, is_bundle=True).passed(strict=True)
    assert main(["export", "recordings"]) == 0, "the earlier recordings have the proofs"
    shutil.rmtree("data/recordings/live")
    faults = audit(broken.folder, is_bundle=True).faults
    assert len([fault for fault in faults if fault.startswith("gamma with live, ") and NO_LOG in fault]) == 4
    assert main(["export", "recordings"]) == 2
    assert NO_LOG in capsys.readouterr().err


def test_a_failed_call_without_the_neutral_calls_between_its_attempts_proves_nothing(broken):
    for path in CALLS.glob("*.jsonl"):
        edit_calls(path, lambda call: None if call.get("kind") == "neutral" else call)
    faults = audit(broken.folder, is_bundle=True).faults
    assert any(fault.startswith("gamma with live, H1, call 1: ") and NO_LOG in fault for fault in faults)


def test_a_rivals_reply_that_became_a_refusal_is_found_in_a_bundle(live, monkeypatch, capsys):
    monkeypatch.chdir(live.folder)
    refuse(live.folder, "alpha")
    summarise(live.folder)
    evaluate(live.folder, since="extract")
    write_bytes(live.folder / "b.zip", make_bundle(live.folder))
    assert main(["verify", "b.zip"]) == 1
    assert f"alpha with live, H1, call 1: {NO_LOG}" in capsys.readouterr().out


def test_what_a_bundle_cannot_run_again_here_fails_it(tampered, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PCGEVAL_NO_SANDBOX", "1")
    write_bytes(tmp_path / "b.zip", make_bundle(tampered))
    assert main(["verify", "b.zip"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("FAILED")
    assert "not run again: generate: the trials of gamma" in shown
