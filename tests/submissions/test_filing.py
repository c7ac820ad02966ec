"""Filing submissions: whole or not at all, and nothing gets lost."""

import json
import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from handed_in_for_tests import PROGRAM_FILES, PROMPT_FILES, README, contents, texts, write_folder, write_zip

from pcgeval.cli.main import main
from pcgeval.core.layout import RUN_LOCK, generation_lock
from pcgeval.core.locks import FolderBusyError, lock_folder
from pcgeval.core.params import ParamsError
from pcgeval.submissions import filing
from pcgeval.submissions.filing import FilingError, SubmitOptions, submit
from pcgeval.submissions.findings import FORMAL_CODES
from pcgeval.submissions.hand_in import HandInError
from pcgeval.submissions.load import AcceptedFinding, Program, load_submission, submission_sha256

PARAMS = {
    "competition": {"name": "test", "edition": "1", "characters": "IT", "trials": 2, "seed": 1},
    "teams": ["a", "base"],
    "models": {name: {"backend": "recorded", "name": name} for name in ("b", "b-c")},
    "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 3},
    **{section: {} for section in ("physics", "similarity", "diversity", "scoring", "rubric")},
}
SUBMISSIONS = Path("data/submissions")


@pytest.fixture
def competition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A competition's folder without git, where the test runs, and beside it what was handed in."""
    folder = tmp_path / "competition"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    write_folder(tmp_path / "alpha", PROMPT_FILES)
    write_folder(tmp_path / "program", PROGRAM_FILES)
    return tmp_path


def git(*words: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_folder_is_filed_as_it_is(competition: Path):
    filed = submit(competition / "program")
    assert filed.folder == SUBMISSIONS / "program"
    assert not filed.replaced
    assert contents(filed.folder) == contents(competition / "program")
    assert load_submission(filed.folder).work == Program(filed.folder, "main.py")
    assert oct(filed.folder.stat().st_mode)[-3:] == "755"
    assert tree(SUBMISSIONS) == ["program", *(f"program/{each}" for each in tree(competition / "program"))]


def test_the_command_and_the_receipt_give_the_hash_of_the_submission(
    competition: Path, capsys: pytest.CaptureFixture[str]
):
    write_folder(competition / "program", {"__pycache__/main.cpython-311.pyc": "x", "submission.yaml": "title: P\n"})
    assert main(["submit", str(competition / "program"), "--as-baseline"]) == 0
    digest = submission_sha256(SUBMISSIONS / "program")
    assert f"SHA-256 of the submission: {digest}" in capsys.readouterr().err.splitlines()
    (receipt,) = Path(".pcgeval/receipts/program").glob("*.md")
    assert f"- SHA-256 of the submission: `{digest}`" in receipt.read_text().splitlines()
    assert submission_sha256(competition / "program") == digest  # also before anything was left out


def test_a_zip_file_gives_the_same_bytes(competition: Path):
    archive = write_zip(competition / "beta.zip", {f"wrapped/{name}": each for name, each in PROGRAM_FILES.items()})
    filed = submit(archive)
    assert filed.folder == SUBMISSIONS / "beta"
    assert contents(filed.folder) == contents(competition / "program")


def test_a_second_submission_replaces_the_first_as_a_whole(competition: Path):
    submit(competition / "alpha")
    filed = submit(competition / "program", "alpha")
    assert filed.replaced
    assert contents(SUBMISSIONS / "alpha") == contents(competition / "program")
    assert tree(SUBMISSIONS)[0] == "alpha"
    assert all(name.startswith("alpha") for name in tree(SUBMISSIONS))


@pytest.mark.parametrize("exchange", [True, False])
def test_a_failure_leaves_the_old_one(competition: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool):
    submit(competition / "alpha")
    before = contents(SUBMISSIONS)
    if not exchange:
        monkeypatch.setattr(filing, "_exchange", lambda *_: False)
    (competition / "alpha" / "README.md").unlink()
    assert submit(competition / "alpha", "alpha").folder is None
    assert contents(SUBMISSIONS) == before
    write_folder(competition / "alpha", {**PROMPT_FILES, "more.txt": "x"})
    with monkeypatch.context() as broken:
        broken.setattr(filing, "_take_over", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            submit(competition / "alpha", "alpha")
    assert contents(SUBMISSIONS) == before
    submit(competition / "alpha", "alpha")
    assert tree(SUBMISSIONS) == ["alpha", *(f"alpha/{each}" for each in tree(competition / "alpha"))]


def test_when_the_system_cannot_exchange_the_old_one_comes_back(competition: Path, monkeypatch: pytest.MonkeyPatch):
    submit(competition / "alpha")
    before = contents(SUBMISSIONS / "alpha")
    monkeypatch.setattr(filing, "_exchange", lambda *_: False)
    rename = Path.rename

    def fails_for_the_new_one(self: Path, target: Path) -> Path:
        if self.name.endswith(".part") and ".old" not in self.name and target.name == "alpha":
            raise OSError(5, "disk trouble")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_for_the_new_one)
    with pytest.raises(OSError, match="disk trouble"):
        submit(competition / "program", "alpha")
    assert contents(SUBMISSIONS / "alpha") == before


def test_killed_at_any_moment_it_leaves_the_old_one_or_the_new_one(competition: Path):
    versions = [competition / "alpha", competition / "program"]
    wholes = [contents(version) for version in versions]
    submit(versions[0], "alpha")
    for number in range(20):
        child = os.fork()
        if child == 0:
            try:
                submit(versions[number % 2], "alpha")
            finally:
                os._exit(0)
        time.sleep(number * 0.0015)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert contents(SUBMISSIONS / "alpha") in wholes
    submit(versions[1], "alpha")
    assert tree(SUBMISSIONS) == ["alpha", *(f"alpha/{each}" for each in tree(versions[1]))]


def test_what_a_killed_run_left_is_removed(competition: Path):
    write_folder(SUBMISSIONS / ".alpha.x1y2.part", {"README.md": "half"})
    submit(competition / "alpha")
    assert tree(SUBMISSIONS)[0] == "alpha"
    assert not list(SUBMISSIONS.glob(".*"))


def test_killed_between_two_renames_the_old_one_comes_back(competition: Path):
    submit(competition / "alpha")
    before = contents(SUBMISSIONS / "alpha")
    (SUBMISSIONS / "alpha").rename(SUBMISSIONS / ".alpha.x1y2.old.part")
    write_folder(SUBMISSIONS / ".alpha.x1y2.part", {"README.md": "whole, but not yet in place"})
    submit(competition / "program", "beta")
    assert contents(SUBMISSIONS / "alpha") == before
    assert not list(SUBMISSIONS.glob(".*"))


def test_a_submission_with_errors_is_not_filed(competition: Path):
    (competition / "alpha" / "README.md").unlink()
    filed = submit(competition / "alpha")
    assert (filed.folder, filed.to_do) == (None, ())
    assert texts(filed.check.findings)
    assert tree(SUBMISSIONS) == []


def test_the_word_limit_is_that_of_the_competition(competition: Path):
    write_folder(competition / "alpha", {"prompt.txt": "one two three <OBJECT>"})
    assert submit(competition / "alpha").folder is not None
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    assert texts(submit(competition / "alpha", "alpha").check.findings) == [
        "prompt.txt: the prompt has 4 words; 3 are allowed"
    ]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../alpha",
        "a/b",
        "/etc/x",
        "logs",
        "result",
        "Result",
        "é",
        "a b",
        "-a",
        "_a",
        "x" * 65,
        "CON",
        "a\n",
    ],
)
def test_odd_and_reserved_names_are_refused(competition: Path, name: str):
    with pytest.raises(FilingError, match="Give the name with --team"):
        submit(competition / "alpha", name)
    assert not SUBMISSIONS.exists()


def test_the_name_comes_from_the_folder_or_file(competition: Path, monkeypatch: pytest.MonkeyPatch):
    write_folder(competition / "My Team (final)", PROMPT_FILES)
    with pytest.raises(FilingError, match="such as --team My-Team-final"):
        submit(competition / "My Team (final)")
    assert submit(write_zip(competition / "gamma.v2.zip", PROMPT_FILES), "gamma").team == "gamma"
    monkeypatch.chdir(competition / "alpha")
    assert submit(Path()).team == "alpha"


def test_names_that_cannot_stand_beside_others_are_refused(competition: Path):
    submit(competition / "alpha")
    with pytest.raises(FilingError, match=r"alpha.*some disks"):
        submit(competition / "alpha", "Alpha")
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    with pytest.raises(ParamsError, match=r"teams 'a' and 'c-a'.*b-c-a"):
        submit(competition / "alpha", "c-a")


def test_what_to_add_to_params_is_said_and_not_done(competition: Path):
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    before = Path("params.yaml").read_bytes()
    write_folder(competition / "alpha", {"prompt.txt": "<OBJECT>"})
    filed = submit(competition / "alpha")
    assert "add the team to params.yaml: teams: [a, base, alpha]" in filed.to_do
    assert any("no recordings of this team with b, b-c" in line for line in filed.to_do)
    assert not any("teams:" in line for line in submit(competition / "alpha", "base").to_do)
    assert Path("params.yaml").read_bytes() == before


def test_the_organisers_notes_are_the_organisers(competition: Path):
    write_folder(competition / "alpha", {"submission.yaml": "title: Alpha!\nrole: baseline\ndisqualified: no\n"})
    assert "disqualified: Input should be" in texts(submit(competition / "alpha").check.findings)[0]
    write_folder(competition / "alpha", {"submission.yaml": "title: Älpha!\nrole: baseline\n"})
    submit(competition / "alpha", "alpha")
    first = load_submission(SUBMISSIONS / "alpha")
    assert (first.title, first.notes.role) == ("Älpha!", "participant")
    (SUBMISSIONS / "alpha" / "submission.yaml").write_text(
        "title: X\nrole: baseline\ndisqualified: it cheated\nflags_accepted: {by: Ada, reason: seen}\n"
    )
    write_folder(competition / "alpha", {"submission.yaml": "title: New\n", "prompt.txt": "New <OBJECT>"})
    filed = submit(competition / "alpha", "alpha", SubmitOptions(replace=True))
    second = load_submission(SUBMISSIONS / "alpha")
    assert (second.title, second.notes.role, second.notes.disqualified) == ("New", "baseline", "it cheated")
    assert second.notes.flags_accepted is None  # that was about other trials
    kept = "\n".join(texts(filed.check.findings, "note"))
    assert "role: baseline" in kept
    assert "disqualified: it cheated" in kept


def test_notes_without_the_organisers_words_stay_as_they_are(competition: Path):
    notes = "# our notes\nentry:   main.py\n"
    write_folder(competition / "program", {"submission.yaml": notes})
    submit(competition / "program")
    assert (SUBMISSIONS / "program" / "submission.yaml").read_text() == notes


def test_nothing_that_git_has_not_kept_is_replaced(competition: Path):
    git("init", "-q")
    submit(competition / "alpha")
    write_folder(competition / "alpha", {"prompt.txt": "Second <OBJECT>"})
    with pytest.raises(FilingError, match=r"not committed.*git add data/submissions/alpha"):
        submit(competition / "alpha", "alpha")
    git("add", ".")
    with pytest.raises(FilingError, match="not committed"):
        submit(competition / "alpha", "alpha")
    git("commit", "-qm", "alpha")
    assert submit(competition / "program", "alpha").replaced
    with pytest.raises(FilingError, match="or replace it for good with --force"):
        submit(competition / "alpha", "alpha")
    assert submit(competition / "alpha", "alpha", SubmitOptions(force=True)).replaced
    (SUBMISSIONS / "alpha" / "extra.txt").write_text("x")
    with pytest.raises(FilingError, match="not committed"):
        submit(competition / "alpha", "alpha")
    assert (SUBMISSIONS / "alpha" / "extra.txt").exists()


def test_a_folder_that_git_ignores_is_not_kept_by_it(competition: Path):
    git("init", "-q")
    Path(".gitignore").write_text("build/\n/data/submissions/alpha/\n")
    write_folder(competition / "beta", {**PROMPT_FILES, "build/data.txt": "x"})
    filed = submit(competition / "beta")
    assert texts(filed.check.findings, "warning") == [
        "build/data.txt: is ignored by git; add it with `git add --force`"
    ]
    assert "commit it: git add data/submissions/beta && git commit -m 'Submission of beta'" in filed.to_do
    submit(competition / "alpha")
    write_folder(competition / "alpha", {"prompt.txt": "Second <OBJECT>"})
    with pytest.raises(FilingError, match="not committed"):
        submit(competition / "alpha", "alpha")


def test_a_hook_or_repository_in_the_submission_is_left_out(competition: Path):
    files = {**PROMPT_FILES, ".git/config": "[core]\nfsmonitor = touch /tmp/evil\n", "dvc.yaml": "x", ".gitignore": "*"}
    write_folder(competition / "alpha", files)
    submit(competition / "alpha")
    assert tree(SUBMISSIONS / "alpha") == ["README.md", "prompt.txt"]


def test_what_is_no_folder_is_not_replaced(competition: Path):
    SUBMISSIONS.mkdir(parents=True)
    (SUBMISSIONS / "alpha").symlink_to(competition)
    with pytest.raises(FilingError, match="not a folder"):
        submit(competition / "alpha", "alpha", SubmitOptions(force=True))
    assert (competition / "alpha" / "README.md").exists()


def test_two_at_once_exclude_each_other(competition: Path):
    with lock_folder(SUBMISSIONS, filing.LOCK), pytest.raises(FolderBusyError, match=f"process {os.getpid()}"):
        submit(competition / "alpha")
    assert submit(competition / "alpha").folder is not None


def test_a_submission_may_be_filed_again_from_where_it_lies(competition: Path):
    submit(competition / "program")
    before = contents(SUBMISSIONS / "program")
    assert submit(SUBMISSIONS / "program").status == "unchanged"
    assert contents(SUBMISSIONS / "program") == before


def test_the_organisers_lock_of_packages_is_no_other_submission(competition: Path):
    flags = "role: participant\nflags_accepted: {by: Eve, reason: harmless}\n"
    submit(competition / "program", options=SubmitOptions(received=datetime(2026, 8, 1, tzinfo=UTC)))
    folder = SUBMISSIONS / "program"
    (folder / "requirements-lock.json").write_text("{}")
    (folder / "submission.yaml").write_text(flags)
    before = contents(folder)
    assert filing.filed_at("program") == datetime(2026, 8, 1, tzinfo=UTC)
    assert submit(competition / "program").status == "unchanged"
    assert contents(folder) == before
    assert submit(competition / "program", options=SubmitOptions(as_baseline=True, replace=True)).replaced
    assert (folder / "requirements-lock.json").read_text() == "{}"
    assert load_submission(folder).notes.flags_accepted is not None
    (competition / "program" / "more.txt").write_text("another submission")
    assert submit(competition / "program", options=SubmitOptions(replace=True)).replaced
    assert not (folder / "requirements-lock.json").exists()


def test_the_command(competition: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["submit", str(competition / "alpha")]) == 0
    out, err = capsys.readouterr()
    assert out == "data/submissions/alpha\n"
    assert "filed data/submissions/alpha: a prompt, 2 files" in err
    assert main(["submit", str(competition / "program"), "--team", "alpha", "--json"]) == 0
    out, err = capsys.readouterr()
    values = json.loads(out)
    assert (values["team"], values["replaced"], values["kind"], values["entry"]) == (
        "alpha",
        True,
        "program",
        "main.py",
    )
    assert (values["folder"], values["to_do"]) == ("data/submissions/alpha", [])
    (competition / "alpha" / "README.md").unlink()
    assert main(["submit", str(competition / "alpha")]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("error: has no README.md")
    assert "was not filed" in err
    assert main(["submit", str(competition / "alpha"), "--team", "logs"]) == 2
    assert main(["submit", str(competition / "nowhere"), "--team", "x"]) == 2
    assert not (SUBMISSIONS / "x").exists()
    with pytest.raises(HandInError):
        submit(competition / "nowhere", "x")


def readme(team: str) -> str:
    return f"# Ours\n\n**Team name:** {team}\n"


def test_a_name_from_the_file_alone_replaces_nobody(competition: Path):
    submit(competition / "alpha")
    before = contents(SUBMISSIONS)
    write_folder(competition / "other" / "alpha", {**PROMPT_FILES, "prompt.txt": "Not alpha's <OBJECT>"})
    with pytest.raises(FilingError, match=r"nothing but the file's name.*--replace.*--team alpha"):
        submit(competition / "other" / "alpha")
    assert contents(SUBMISSIONS) == before
    assert submit(competition / "alpha").status == "unchanged"
    write_folder(competition / "other" / "alpha", {"README.md": readme("Team Alpha")})
    assert submit(competition / "other" / "alpha").replaced


def test_another_team_or_a_baseline_is_replaced_only_on_request(competition: Path):
    submit(competition / "alpha")
    submit(competition / "program", "base", SubmitOptions(as_baseline=True))
    before = contents(SUBMISSIONS)
    intruder = write_folder(competition / "penguins", {**PROMPT_FILES, "README.md": readme("Penguins")})
    with pytest.raises(FilingError, match=r"alpha.*README.*'Penguins'.*--replace"):
        submit(intruder, "alpha")
    with pytest.raises(FilingError, match=r"base.*is a baseline.*--replace"):
        submit(intruder, "base")
    with pytest.raises(FilingError, match="is a baseline"):
        submit(competition / "alpha", "base")
    assert contents(SUBMISSIONS) == before
    assert submit(intruder, "alpha", SubmitOptions(replace=True)).replaced
    assert submit(intruder, "base", SubmitOptions(replace=True)).replaced
    assert load_submission(SUBMISSIONS / "base").notes.role == "baseline"


def test_a_team_may_go_on_with_the_long_name_in_its_readme(competition: Path):
    folder = write_folder(competition / "x", {**PROMPT_FILES, "README.md": readme("Pingüinos de Lima")})
    filed = submit(folder, "lima")
    assert texts(filed.check.findings, "warning") == [
        ": the README names the team 'Pingüinos de Lima', and it is filed as 'lima'"
    ]
    write_folder(folder, {"README.md": readme("`pinguinos-de-lima`"), "prompt.txt": "Better <OBJECT>"})
    assert submit(folder, "lima").replaced


@pytest.mark.parametrize(
    "line",
    ["Team: alpha", "team-name : Alpha", "## Team: **Team Alpha**", "> *Team Name*: `ALPHA`.", "- Team\uff1a alpha"],
)
def test_the_readmes_name_is_compared_without_signs_and_case(competition: Path, line: str):
    write_folder(competition / "alpha", {"README.md": f"# x\n{line}\nTeam: other\n"})
    assert submit(competition / "alpha").check.findings == ()
    assert [each.severity for each in submit(competition / "alpha", "beta").check.findings] == ["warning"]


def test_a_baseline_is_filed_as_one(competition: Path):
    write_folder(competition / "alpha", {"submission.yaml": "title: Alpha!\n"})
    submit(competition / "alpha", options=SubmitOptions(as_baseline=True))
    filed = load_submission(SUBMISSIONS / "alpha")
    assert (filed.notes.role, filed.title) == ("baseline", "Alpha!")
    assert submit(competition / "alpha").status == "unchanged"


@pytest.mark.parametrize(
    ("teams", "added"),
    [
        ("teams: [a, base]  # ours", "teams: [a, base, new]  # ours"),
        ("teams: [\n  a,  # one\n  'base',\n]", "teams: [\n  a,  # one\n  'base', new,\n]"),
        ("teams:\n- a\n- base   # last\n# end", "teams:\n- a\n- base   # last\n- new\n# end"),
        ("teams:\r\n    - a\r\n    - base\r\n", "teams:\r\n    - a\r\n    - base\r\n    - new\r\n"),
    ],
)
@pytest.mark.parametrize("is_last", [True, False])
def test_a_team_is_added_and_the_rest_of_params_stays(competition: Path, teams: str, added: str, is_last: bool):
    others = yaml.safe_dump({key: value for key, value in PARAMS.items() if key != "teams"})
    before = f"# é\n{others}{teams}" if is_last else f"{teams}\n{others}"
    Path("params.yaml").write_bytes(before.encode())
    write_folder(competition / "alpha", {"prompt.txt": "<OBJECT>"})
    filed = submit(competition / "alpha", "new", SubmitOptions(add=True))
    assert not any("params.yaml" in line for line in filed.to_do)
    assert Path("params.yaml").read_bytes().decode() == before.replace(teams, added)
    submit(competition / "alpha", "new", SubmitOptions(add=True))
    assert Path("params.yaml").read_bytes().decode() == before.replace(teams, added)


@pytest.mark.parametrize("team", ["123", "no", "1e5", "2026-08-01", "null"])
def test_an_added_name_stays_a_name(competition: Path, team: str):
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    write_folder(competition / "alpha", {"prompt.txt": "<OBJECT>"})
    submit(competition / "alpha", team, SubmitOptions(add=True))
    assert yaml.safe_load(Path("params.yaml").read_text())["teams"] == ["a", "base", team]


@pytest.mark.parametrize("lock", [RUN_LOCK, generation_lock("b"), generation_lock("b-c")], ids=str)
def test_no_team_of_the_competition_is_replaced_during_an_evaluation(competition: Path, lock: Path):
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    write_folder(competition / "alpha", {"prompt.txt": "<OBJECT>"})
    submit(competition / "alpha", "a")
    lock.write_text(f"{os.getppid()}\n")
    write_folder(competition / "alpha", {"prompt.txt": "The <OBJECT>"})
    with pytest.raises(
        FilingError, match=rf"^data/submissions/a: process {os.getppid()} evaluates the teams of params"
    ):
        submit(competition / "alpha", "a")
    assert submit(competition / "alpha", "no-team-of-params").status == "filed"
    lock.write_text("999999999\n")  # killed
    assert submit(competition / "alpha", "a").replaced


def test_a_team_is_replaced_while_a_round_is_evaluated_which_has_a_copy(competition: Path):
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    write_folder(competition / "alpha", {"prompt.txt": "<OBJECT>"})
    submit(competition / "alpha", "a")
    Path(".pcgeval/locks/round-midterm-0123456789ab.lock").write_text(f"{os.getppid()}\n")
    write_folder(competition / "alpha", {"prompt.txt": "The <OBJECT>"})
    assert submit(competition / "alpha", "a").replaced


def test_no_team_is_added_while_another_is_evaluated(competition: Path):
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    before = Path("params.yaml").read_bytes()
    write_folder(competition / "alpha", {"prompt.txt": "<OBJECT>"})
    ready, started = os.pipe()
    child = os.fork()
    if child == 0:
        with lock_folder(Path("data/raw/b"), generation_lock("b")):
            os.write(started, b"x")
            signal.pause()
    os.read(ready, 1)
    try:
        with pytest.raises(FilingError, match=rf"process {child} evaluates"):
            submit(competition / "alpha", options=SubmitOptions(add=True))
        assert tree(SUBMISSIONS) == []
        assert submit(competition / "alpha").status == "filed"
        with pytest.raises(FilingError, match=rf"process {child} evaluates"):
            submit(competition / "alpha", options=SubmitOptions(add=True))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert Path("params.yaml").read_bytes() == before
    assert submit(competition / "alpha", options=SubmitOptions(add=True)).status == "unchanged"
    assert yaml.safe_load(Path("params.yaml").read_text())["teams"] == ["a", "base", "alpha"]


def test_without_params_no_team_is_added(competition: Path):
    with pytest.raises(ParamsError, match="competition's folder"):
        submit(competition / "alpha", options=SubmitOptions(add=True))
    assert not SUBMISSIONS.exists()


def test_teams_in_a_form_that_cannot_be_edited_are_left(competition: Path):
    values = yaml.safe_dump({key: value for key, value in PARAMS.items() if key not in {"teams", "similarity"}})
    text = f"{values}similarity: {{model: &x a}}\nteams: [*x]\n"
    Path("params.yaml").write_text(text)
    write_folder(competition / "alpha", {"prompt.txt": "<OBJECT>"})
    with pytest.raises(ParamsError, match=r"cannot be edited.*Add new"):
        submit(competition / "alpha", "new", SubmitOptions(add=True))
    assert Path("params.yaml").read_text() == text


FORMAL = {
    "prompt-too-long": {"prompt.txt": "<OBJECT> " + "word " * 900},
    "prompt-characters": {"prompt.txt": "<OBJECT> \u00e9"},
    "prompt-without-object": {"prompt.txt": "Draw it."},
    "no-readme": {"README.md": None},
    "empty-readme": {"README.md": " "},
}


@pytest.mark.parametrize("code", FORMAL_CODES)
def test_a_formal_error_is_accepted_with_a_reason_and_kept(competition: Path, code: str):
    files = {name: each for name, each in {**PROMPT_FILES, **FORMAL[code]}.items() if each is not None}
    folder = write_folder(competition / "x", {**files, "submission.yaml": "title: X\n"})
    found = submit(folder, "alpha").check.findings
    assert [each.code for each in found if each.severity == "error"] == [code]
    decision = AcceptedFinding(code=code, reason="by mail, \u00e4")
    filed = submit(folder, "alpha", SubmitOptions(accept=(decision,)))
    assert (filed.status, texts(filed.check.findings)) == ("filed", [])
    assert any("accepted: by mail" in line for line in texts(filed.check.findings, "note"))
    notes = load_submission(SUBMISSIONS / "alpha").notes
    assert (notes.title, notes.findings_accepted) == ("X", (decision,))
    assert submit(folder, "alpha").status == "unchanged"
    write_folder(folder, {"more.txt": "x"})
    assert submit(folder, "alpha").status == "refused"


def test_what_is_no_formal_error_cannot_be_accepted(competition: Path):
    folder = write_folder(competition / "x", {"README.md": README})
    for code, words in (("not-runnable", "cannot be accepted"), ("prompt-too-long", "no error")):
        with pytest.raises(FilingError, match=words):
            submit(folder, "alpha", SubmitOptions(accept=(AcceptedFinding(code=code, reason="x"),)))
    assert tree(SUBMISSIONS) == []


def test_a_participant_accepts_nothing(competition: Path):
    own = "title: X\nfindings_accepted: [{code: prompt-characters, reason: I say so}]\n"
    folder = write_folder(competition / "x", {**PROMPT_FILES, "submission.yaml": own, "prompt.txt": "<OBJECT> \u00e9"})
    assert submit(folder, "alpha").status == "refused"
    write_folder(folder, PROMPT_FILES)
    filed = submit(folder, "alpha")
    assert "findings_accepted are left out" in texts(filed.check.findings, "warning")[0]
    assert load_submission(SUBMISSIONS / "alpha").notes.findings_accepted == ()


def test_the_command_accepts_by_code(competition: Path, capsys: pytest.CaptureFixture[str]):
    folder = str(write_folder(competition / "x", {**PROMPT_FILES, "prompt.txt": "Draw it."}))
    assert main(["submit", folder]) == 1
    assert "[prompt-without-object]" in capsys.readouterr().out
    accept = ["--accept", "prompt-without-object"]
    for words in (accept, ["--reason", "x"], [*accept, "--reason", "x" * 2001], ["--accept", "", "--reason", "x"]):
        assert main(["submit", folder, *words]) == 2
    assert main(["submit", folder, *accept, "--reason", "told us", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["passed"] is True
    assert [each["code"] for each in values["findings"]] == ["prompt-without-object"]
    assert main(["validate", str(SUBMISSIONS / "x"), "--json"]) == 1
    assert "prompt-without-object" in {each["code"] for each in json.loads(capsys.readouterr().out)["findings"]}
