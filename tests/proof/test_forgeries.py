"""Every forgery of bench/tampering.py is found by the audit, with the place and both values."""

import runpy
from pathlib import Path

import pytest

from pcgeval.proof.audit import audit

TAMPERING = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "tampering.py"))
FORGERIES = {forgery.name: forgery for forgery in TAMPERING["FORGERIES"]}

pytestmark = pytest.mark.needs_sandbox


def test_the_competition_itself_passes(tampered: Path) -> None:
    result = audit(tampered, is_bundle=True)
    assert result.passed(), (result.differences, result.faults)
    assert not result.not_run
    assert {team.again for team in result.teams} == {team.total for team in result.teams}


@pytest.mark.parametrize("name", FORGERIES)
def test_the_audit_names_a_forgery(name: str, tampered: Path, tmp_path: Path) -> None:
    findings = TAMPERING["findings"](FORGERIES[name], tampered, tmp_path / "forged")
    assert any(all(word in finding for word in FORGERIES[name].words) for finding in findings), findings
