"""`pcgeval check` compares the team that a submission's README names with the folder that it lies in."""

import json
import shutil
from pathlib import Path

import pytest

from pcgeval.cli.main import main
from pcgeval.core.layout import SUBMISSIONS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(competition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the small competition, where the test runs."""
    shutil.copytree(competition, tmp_path / "copy", ignore=shutil.ignore_patterns("src", "images", "stability"))
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def name_in_readme(team: str, name: str) -> None:
    (SUBMISSIONS / team / "README.md").write_text(f"# Our entry\n\n**Team:** {name}\n")


def warnings(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return what is said of each team's submission, behind the name of its folder; nothing else may be found."""
    capsys.readouterr()
    assert main(["check", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {(finding["group"], finding["severity"]) for finding in findings} <= {("submissions", "warning")}
    return dict(finding["text"].removeprefix(f"{SUBMISSIONS}/").split(": ", 1) for finding in findings)


def test_the_demo_s_names_agree(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert warnings(capsys) == {}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["alpha", "Alpha", "Team ALPHA", "al-pha", "Al pha.", "`alpha`", "Älpha"])
def test_a_readme_may_spell_the_team_otherwise(capsys: pytest.CaptureFixture[str], name: str) -> None:
    name_in_readme("alpha", name)
    assert warnings(capsys) == {}


@pytest.mark.usefixtures("folder")
def test_a_readme_that_names_no_team_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    (SUBMISSIONS / "alpha" / "README.md").write_text("# Penguins\n")
    (SUBMISSIONS / "beta" / "README.md").unlink()
    assert warnings(capsys) == {}


@pytest.mark.usefixtures("folder")
def test_another_team_in_a_readme_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    name_in_readme("alpha", "Penguins \x1b[2J")
    text = r"README.md names the team 'Penguins \\x1b[2J', but the folder is 'alpha'."
    assert warnings(capsys) == {"alpha": f"{text} Rename the folder, or let the team correct its README.md."}


@pytest.mark.usefixtures("folder")
def test_swapped_names_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for before, after in (("alpha", "other"), ("beta", "alpha"), ("other", "beta")):
        (SUBMISSIONS / before).rename(SUBMISSIONS / after)
    assert warnings(capsys) == {
        team: f"README.md names the team {other!r}, but the folder is {team!r}. "
        f"That of {other!r} names {team!r}: the two submissions are swapped. Swap the folders."
        for team, other in (("alpha", "beta"), ("beta", "alpha"))
    }


@pytest.mark.usefixtures("folder")
def test_a_submission_of_another_team_that_takes_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    name_in_readme("alpha", "Beta")
    text = "README.md names the team 'Beta', but the folder is 'alpha'. 'beta' takes part too."
    assert warnings(capsys) == {"alpha": f"{text} Find out whose submission this is."}


@pytest.mark.usefixtures("folder")
def test_a_readme_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    (SUBMISSIONS / "alpha" / "README.md").write_bytes(b"\xff")
    assert "is not UTF-8" in warnings(capsys)["alpha/README.md"]
