"""The documents for people: their links, the paths and the commands that they name exist."""

import re
import shlex
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import pcgeval
from pcgeval import (
    CompetitionResults,
    Entry,
    LetterResults,
    ScoringRules,
    TeamResults,
    score_competition,
)
from pcgeval.cli.main import main
from pcgeval.core.text import plain
from pcgeval.formats.layout import STAGE_DIRS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
OUTPUTS = tuple(f"data/{name}" for name in (*STAGE_DIRS, "trials", "replays", "evidence", "judgements"))


def test_the_documentation_site_has_no_broken_link():
    make = ["make", "--old-file", ".venv/.ready", "docs", f"BIN={Path(sys.executable).parent}"]
    built = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    site = ROOT / "docs/site"
    assert "Your first level" in (site / "index.html").read_text("utf-8")
    reference = (site / "docs/reference.html").read_text("utf-8")
    assert not [name for name in dir(pcgeval) if name[0] != "_" and f'id="pcgeval.{name}"' not in reference]
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    assert set(re.findall(r"^- \[.*\]\((.*)\): ", (site / "llms.txt").read_text("utf-8"), re.MULTILINE)) == pages


def test_the_worked_example_of_the_game_is_what_the_formulas_give():
    document = (ROOT / "docs/game.md").read_text("utf-8")
    _, measures, weights, shares = re.findall(r"^\|[- |]+\|\n((?:\|.*\n)+)", document, re.MULTILINE)
    teams: dict[str, dict[str, LetterResults]] = {}
    for team, letter, stability, similarity, diversity in rows(measures):
        trials = [
            tuple(
                Entry(number, Decimal(value)) for number, value in enumerate(text.split(", "), 1) if value != "failed"
            )
            for text in (stability, similarity)
        ]
        teams.setdefault(team, {})[letter] = LetterResults(*trials, Decimal(diversity))
    results = CompetitionResults({"model": {team: TeamResults(letters) for team, letters in teams.items()}})
    scores = score_competition(results, ScoringRules(letters="IL", trials=2))
    (model,) = scores.models
    computed = [[each.letter, each.stability, each.similarity, each.diversity, each.weight] for each in model.weights]
    assert rows(weights) == [[letter, *map(plain, values)] for letter, *values in computed]
    assert rows(shares) == [
        [each.team, *(plain(letter.score) for letter in each.letters), plain(each.score), f"{each.normalised:.2f} %"]
        for each in model.prompts
    ]


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_a_new_type_of_block_is_a_row_of_the_table_alone(tmp_path):
    """As docs/extending.md says, of a type that the game has."""
    row = re.search(r"`(\"b51\": Shape.*?)`", (ROOT / "docs/extending.md").read_text("utf-8"))[1]
    shutil.copytree(ROOT / "src/pcgeval/formats", tmp_path / "formats")
    table = (ROOT / "src/pcgeval/formats/blocks.py").read_text("utf-8")
    (tmp_path / "formats/blocks.py").write_text(
        table.replace("BLOCKS: Final = {", f"BLOCKS: Final = {{{row},".replace("RectMedium", "RectSmall"))
    )
    code = f"""
import pcgeval
pcgeval.__path__.insert(0, {str(tmp_path)!r})
from pcgeval.levels.conversion import why_no_code
level = pcgeval.level_xml(pcgeval.extract_code("```drop_block('b51', 9) drop_block('b13', 9)```"))
assert level.count("<Block") == 2 and 'x="2.60025"' in level, level  # the post's: the middle of five columns
assert "'b51'" in str(why_no_code("```drop_block('b99', 9)```"))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


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
    assert not {"{", "}"} & set(shown.partition("\n\n")[0])  # which Typer puts around arguments


def test_make_clean_leaves_what_cannot_be_made_again(tmp_path):
    remaining = {f".pcgeval/{name}" for name in ("calls/a.jsonl", "replaced/a/prompt.txt")}
    for name in (*remaining, ".pcgeval/locks/submit.lock", "data/raw/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["make", "-f", ROOT / "Makefile", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} == remaining
