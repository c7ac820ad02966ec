"""The documents for people: their links, the paths and the commands that they name exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pcgeval.cli.main import main
from pcgeval.formats.layout import STAGE_DIRS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
OUTPUTS = tuple(f"data/{name}" for name in (*STAGE_DIRS, "trials", "replays", "evidence", "judgements"))


def test_the_documentation_site_has_no_broken_link():
    make = ["make", "--old-file", ".venv/.ready", "docs", f"BIN={Path(sys.executable).parent}"]
    built = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "Your first level" in (ROOT / "docs/site/index.html").read_text("utf-8")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_files_commands_options_and_make_targets_that_are_named_exist(path, capsys):
    document = path.read_text("utf-8")
    named = re.findall(r"`((?:src|data|docs|stages|bench|tests|training)/[a-z0-9_./-]*)`", document)
    named += [f"src/pcgeval/{name}" for name in re.findall(r"`(\w+/\w+\.py)`", document) if not (ROOT / name).exists()]
    assert not [name for name in named if not name.startswith(OUTPUTS) and not (ROOT / name).exists()]
    targets = re.findall(r"(?:^|`)make ([a-z][a-z -]*)", document, flags=re.MULTILINE)
    assert TARGETS.issuperset(" ".join(targets).split())
    blocks = re.findall(r"^```sh\n(.*?)^```$", document, re.DOTALL | re.MULTILINE)
    for line in re.findall(r"^pcgeval (\S.*)$", "".join(blocks).replace("\\\n", " "), re.MULTILINE):
        check_options(shlex.split(line, comments=True), capsys)


def check_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Compare the words behind `pcgeval` with the help of the command."""
    command = [word for word in words[:2] if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")]
    while command and main([*command, "--help"]):
        command.pop()  # the last word was an argument
    capsys.readouterr()
    assert main([*command, "--help"]) == 0, words
    shown = capsys.readouterr().out
    assert all(word in shown for word in words if word.startswith("--")), words


def test_make_clean_leaves_what_cannot_be_made_again(tmp_path):
    remaining = {f".pcgeval/{name}" for name in ("calls/a.jsonl", "replaced/a/prompt.txt")}
    for name in (*remaining, ".pcgeval/locks/submit.lock", "data/raw/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["make", "-f", ROOT / "Makefile", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == remaining
