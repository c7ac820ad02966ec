"""Filing submissions: whole or not at all, and nothing gets lost."""

import json
import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from handed_in_for_tests import PROGRAM_FILES, PROMPT_FILES, write_folder, write_zip
from params_for_tests import contents, small_params

from pcgeval.cli.main import main
from pcgeval.formats.params import Team, load_params
from pcgeval.submissions.load import Program, SubmissionError, load_submission, submission_sha256
from pcgeval.submissions.validate import validate

PARAMS = small_params("IT", teams=("a", "base")).model_dump(mode="json")
SUBMISSIONS = Path("data/submissions")


@pytest.fixture
def competition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A competition's folder, where the test runs, and beside it what was handed in."""
    folder = tmp_path / "competition"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    write_folder(tmp_path / "alpha", PROMPT_FILES)
    write_folder(tmp_path / "program", PROGRAM_FILES)
    return tmp_path


@pytest.fixture
def submit(capsys: pytest.CaptureFixture[str]):
    """Run `pcgeval submit` and return its JSON, or the message about bad input."""

    def run(*words: object, code: int = 0):
        assert main(["submit", *map(str, words), "--json"]) == code
        printed = capsys.readouterr()
        return json.loads(printed.out) if printed.out else printed.err

    return run


def teams() -> list[str]:
    return list(yaml.safe_load(Path("params.yaml").read_text())["teams"])


def test_a_folder_and_a_zip_file_are_filed_as_they_are_and_take_part(competition, submit, capsys):
    filed, folder, given = submit(competition / "program"), SUBMISSIONS / "program", contents(competition / "program")
    assert (filed["status"], filed["folder"], filed["sha256"]) == ("filed", str(folder), submission_sha256(folder))
    assert contents(SUBMISSIONS) == {f"program/{name}": content for name, content in given.items()}
    assert submit(competition / "program")["status"] == submit(folder)["status"] == "unchanged"
    archive = write_zip(competition / "beta.v2.zip", {f"wrapped/{name}": text for name, text in PROGRAM_FILES.items()})
    assert submit(archive, "--team", "beta")["sha256"] == filed["sha256"]
    assert contents(SUBMISSIONS / "beta") == given
    # a repository's hooks, a pipeline and caches are left out
    hooks = {".git/config": "[core]\nfsmonitor = touch /tmp/evil\n", "dvc.yaml": "x", ".gitignore": "*"}
    hooks |= {"__pycache__/main.cpython-311.pyc": "x"}
    write_folder(competition / "program", hooks)
    assert submit(competition / "program")["status"] == "unchanged"
    assert contents(folder) == given
    assert main(["submit", str(competition / "alpha")]) == 0
    printed = capsys.readouterr()
    assert printed.out == "data/submissions/alpha\n"
    assert submission_sha256(SUBMISSIONS / "alpha") in printed.err
    assert teams() == ["a", "base", "program", "beta", "alpha"]


def test_the_hash_of_a_submission_covers_what_was_handed_in(tmp_path: Path):
    folder = write_folder(tmp_path, {"prompt.txt": "<OBJECT>", "z/é.txt": "é"})
    files = [["prompt.txt", sha256(b"<OBJECT>").hexdigest()], ["z/é.txt", sha256("é".encode()).hexdigest()]]
    text = json.dumps(files, ensure_ascii=False, separators=(",", ":"))
    hashes = [submission_sha256(folder)]
    assert hashes == [sha256(text.encode()).hexdigest()]
    covered = ("prompt.txt", "submission.yaml", "requirements-lock.txt", "__pycache__/a.pyc", ".gitignore", "z/.env")
    hashes += [submission_sha256(write_folder(folder, {name: "title: Alpha\n"})) for name in covered]
    assert len(set(hashes)) == 1 + len(covered)
    (folder / "z" / "a.link").symlink_to("prompt.txt")
    for read in (submission_sha256, load_submission, Program(folder, "main.py").files):
        with pytest.raises(SubmissionError, match=r"z/a\.link: is a link"):
            read(*([folder] if read.__name__ != "files" else []))


def test_a_submission_with_errors_is_not_filed(competition, submit):
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS | {"limits": PARAMS["limits"] | {"prompt_words": 1}}))
    filed = submit(competition / "alpha", code=1)
    assert (filed["folder"], filed["status"]) == (None, "refused")
    assert [finding["text"] for finding in filed["findings"]] == ["the prompt has 3 words; 1 are allowed"]
    assert not validate(competition / "alpha").passed
    assert (list(SUBMISSIONS.iterdir()), teams()) == ([], ["a", "base"])


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc/x", "Result", "é", "a b", "x" * 65, "CON", "a\n", "BASE"])
def test_odd_and_reserved_names_are_refused(competition, submit, name):
    words = "upper and lower case" if name == "BASE" else "Give another name with --team"
    assert words in submit(competition / "alpha", "--team", name, code=2)
    assert (SUBMISSIONS.exists(), teams()) == (False, ["a", "base"])


KILLED_AFTER_THE_FIRST_RENAME = """
import os, pathlib, sys
from pcgeval.cli.main import main
rename = pathlib.Path.rename
pathlib.Path.rename = lambda path, target: (rename(path, target), os._exit(9))
main(["submit", sys.argv[1], "--replace"])
"""


def test_a_replaced_submission_is_kept_and_the_organisers_decisions_stay(competition, submit):
    folder = SUBMISSIONS / "alpha"
    write_folder(competition / "alpha", {"submission.yaml": "title: Mine\nrole: baseline\n"})
    submit(competition / "alpha")
    assert load_submission(folder, load_params().teams["alpha"]).title == "alpha"  # a team decides nothing
    assert load_submission(folder, Team(title=" \u202e\n")).title == "alpha"  # nobody could click on it
    first = contents(folder)
    decided = {**PARAMS["teams"], "alpha": {"title": 'Älpha: "#1" ${x} [é], it\'s', "role": "baseline"}}
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS | {"teams": decided}))
    assert load_submission(folder, load_params().teams["alpha"]).title == decided["alpha"]["title"]
    write_folder(competition / "alpha", {"prompt.txt": "New <OBJECT>"})
    assert "--replace" in submit(competition / "alpha", code=2)
    assert contents(folder) == first
    killed = [sys.executable, "-c", KILLED_AFTER_THE_FIRST_RENAME, str(competition / "alpha")]
    assert subprocess.run(killed, check=False).returncode == 9
    assert not folder.exists()
    assert submit(competition / "alpha", "--replace")["status"] == "replaced"
    assert yaml.safe_load(Path("params.yaml").read_text())["teams"] == decided
    (earlier,) = Path(".pcgeval/replaced").iterdir()
    assert contents(earlier) == first


def test_a_link_and_another_place_than_a_competition_are_refused(competition, submit):
    SUBMISSIONS.mkdir(parents=True)
    (SUBMISSIONS / "alpha").symlink_to(competition)
    assert "not a folder" in submit(competition / "alpha", "--replace", code=2)
    os.chdir(competition / "alpha")
    assert "params.yaml" in submit(competition / "program", code=2)
    assert contents(competition / "alpha").keys() == PROMPT_FILES.keys()


def test_killed_at_any_moment_no_half_of_a_submission_is_filed(competition, submit):
    write_folder(competition / "alpha", {f"data/{number}.txt": "x" * 1000 for number in range(300)})
    words = [sys.executable, "-m", "pcgeval", "submit", str(competition / "alpha")]
    for seconds in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        if (SUBMISSIONS / "alpha").exists():
            assert contents(SUBMISSIONS / "alpha") == contents(competition / "alpha")
    assert submit(competition / "alpha")["status"] in {"filed", "unchanged"}
    assert [path.name for path in (*SUBMISSIONS.iterdir(), *Path(".pcgeval/submit").iterdir())] == ["alpha"]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ("teams: {a: {}, 'base': {}}  # one\n", "teams: {a: {}, 'base': {}, new: {}} # one\n"),
        ("teams: {a, base}\n", "teams: {a: null, base: null, new: {}}\n"),
        (
            "teams:  # our\n  a:  # first\n  base: {role: baseline}   # last\n\n# end\n",
            "teams:  # our\n  a: null # first\n  base: {role: baseline}   # last\n  new: {}\n\n# end\n",
        ),
        (
            "teams:\n  base:\n    role: 'baseline'\n    title: B # b\n\n# end\n",
            "teams:\n  base:\n    role: 'baseline'\n    title: B # b\n  new: {}\n\n# end\n",
        ),
        (
            "teams:\n    base:\n        title: |\n            B\n# {\nexecution: {  # no\n}\n",
            "teams:\n    base:\n        title: |\n            B\n    new: {}\n# {\nexecution: {  # no\n}\n",
        ),
        (
            "teams:\n  a: {}\n  base:\n    title: B\n# end\n",
            "teams:\n  a: {}\n  base:\n    title: B\n  new: {}\n# end\n",
        ),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_team_is_added_and_the_rest_of_params_stays(competition, submit, given, added, line_end):
    values = {key: value for key, value in PARAMS.items() if f"{key}:" not in given}
    others = yaml.safe_dump(values | {"scoring": {"bootstrap": 7, "baseline": None}}, sort_keys=False)
    for before in (f"# é\n{others}{given}", f"{given}{others}"):
        Path("params.yaml").write_bytes(before.replace("\n", line_end).encode())
        submit(competition / "alpha", "--team", "new")
        assert Path("params.yaml").read_bytes().decode() == before.replace(given, added).replace("\n", line_end)
    numbers = ["123", "no", "1e5", "2026-08-01", "null"]  # in YAML, these would not be names
    before = teams()
    for team in numbers:
        submit(competition / "alpha", "--team", team)
    assert teams() == [*before, *numbers]


@pytest.mark.parametrize(
    "given", ["teams: {\n  a: {},  # one\n  base: {},\n}\n", "teams: {a: &a {}, base: {}}\nrounds: *a\n"]
)
def test_params_that_cannot_be_edited_stay_and_nothing_is_filed(competition, submit, given):
    before = given + yaml.safe_dump({key: value for key, value in PARAMS.items() if key not in {"teams", "rounds"}})
    Path("params.yaml").write_text(before)
    assert 'Write {"new":{}} into `teams` yourself' in submit(competition / "alpha", "--team", "new", code=2)
    assert contents(Path()) == {"params.yaml": before.encode()}
