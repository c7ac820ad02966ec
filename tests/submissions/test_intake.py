"""Many submissions from a CSV file: every row is checked, and the last one in time counts."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from handed_in_for_tests import PROMPT_FILES, contents, write_folder, write_zip
from hypothesis import given, settings
from hypothesis import strategies as st

from pcgeval.cli.main import main
from pcgeval.core.errors import PcgevalError
from pcgeval.core.params import ParamsError, load_params
from pcgeval.submissions.filing import SubmitOptions
from pcgeval.submissions.intake import IntakeError, IntakeResult, submit_many

PARAMS = {
    "competition": {"name": "test", "edition": "1", "characters": "IT", "trials": 2, "seed": 1},
    "teams": ["base"],
    "models": {"m": {"backend": "recorded", "name": "m"}},
    "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 900},
    **{section: {} for section in ("physics", "similarity", "diversity", "scoring", "rubric")},
}
SUBMISSIONS, RECEIPTS, CONTACTS = Path("data/submissions"), Path(".pcgeval/receipts"), Path(".pcgeval/contacts.csv")
OPTIONS = SubmitOptions()
HEADER = "team,file,received,contact\n"


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what three teams handed in, beside the competition's folder, where the test runs."""
    competition = tmp_path / "competition"
    competition.mkdir()
    monkeypatch.chdir(competition)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for name in ("one", "two", "three"):
        write_zip(tmp_path / "in" / f"{name}.zip", {**PROMPT_FILES, "prompt.txt": f"Draw <OBJECT> {name}"})
    return tmp_path / "in"


def set_params(**intake: str) -> None:
    Path("params.yaml").write_text(yaml.safe_dump({**PARAMS, "intake": intake}))


def many(inbox: Path, table: str | bytes, options: SubmitOptions = OPTIONS) -> list[IntakeResult]:
    file = inbox.parent / "list.csv"
    file.write_bytes(table.encode() if isinstance(table, str) else table)
    return submit_many(inbox, file, options)


def prompts() -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in SUBMISSIONS.glob("*/prompt.txt")}


@pytest.mark.parametrize(
    "table",
    [
        "team,file,received,contact\nalpha,one.zip,2026-08-01T10:00:00Z,a@example.org\n",
        "\ufeffTeam;File;Received;Contact;Paid\r\nalpha;one.zip;2026-08-01 12:00+02:00;a@example.org;yes;;\r\n;;;;\r\n",
        'Nr,"Your\nteam?",contact,received,file,team\n1,"x,\ny",a@example.org,2026-08-01T10:00,one.zip, alpha \n',
    ],
)
def test_tables_of_excel_and_of_forms_are_read(inbox: Path, table: str):
    (result,) = many(inbox, table)
    assert (result.result, result.row.team) == ("filed", "alpha")
    assert prompts() == {"alpha": "Draw <OBJECT> one"}
    assert CONTACTS.read_text().splitlines() == ["team,received,contact", "alpha,2026-08-01T10:00:00Z,a@example.org"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "'team' 0 times"),
        ("team,file\nalpha,one.zip\n", "'received' 0 times"),
        ("team,file,received,Team\n", "'team' 2 times"),
        (HEADER + 'alpha,"one.zip,2026-08-01T10:00Z,\n', "is not CSV"),
        ("\ufeffteam,file".encode("utf-16"), "UTF-8"),
    ],
)
def test_what_is_no_table_files_nothing(inbox: Path, table: str | bytes, words: str):
    with pytest.raises(Exception, match=words) as caught:
        many(inbox, table)
    assert isinstance(caught.value, IntakeError) or "UTF-8" in words
    assert main(["submit", str(inbox), "--csv", str(inbox.parent / "list.csv")]) == 2
    assert not SUBMISSIONS.exists()


@pytest.mark.parametrize(
    "name",
    [
        *("../out.zip", "/etc/passwd", "a/../../out.zip", "link.zip", "links/one.zip", "nowhere.zip", "", "."),
        *("C:\\x.zip", "text.txt", "\0", "x" * 5000),
    ],
)
def test_hostile_and_wrong_file_names_stop_nothing_else(inbox: Path, name: str, capsys: pytest.CaptureFixture[str]):
    write_zip(inbox.parent / "out.zip", PROMPT_FILES)
    (inbox / "text.txt").write_text("x")
    (inbox / "link.zip").symlink_to(inbox.parent / "out.zip")
    (inbox / "links").symlink_to(inbox.parent)
    table = (
        f"{HEADER}alpha,one.zip,2026-08-01T10:00Z,\nbeta,{name},2026-08-01T10:00Z,\ngamma,two.zip,2026-08-01T10:00Z,\n"
    )
    results = many(inbox, table)
    assert [each.result for each in results] == ["filed", "faulty", "filed"]
    assert sorted(prompts()) == ["alpha", "gamma"]
    assert main(["submit", str(inbox), "--csv", str(inbox.parent / "list.csv")]) == 1
    assert "\nlist.csv:3: " in capsys.readouterr().out


def test_all_faults_of_rows_are_listed_by_line(inbox: Path):
    set_params()
    table = (
        "team,file,received\n"
        "a b,nowhere.zip,yesterday\n"
        "\n"
        "alpha,one.zip,2026-08-01\n"
        "alpha,one.zip,0001-01-01T00:00+14:00\n"
        "Logs,one.zip,2026-08-01T10:00Z\n"
        "Base,one.zip,2026-08-01T10:00Z\n"
        "alpha,one.zip,2026-08-01T10:00Z,one,more\n"
        "beta,one.zip,2026-08-01T10:00Z\n"
        "Beta,two.zip,2026-08-01T11:00Z\n"
        "gamma,one.zip,2026-08-01T10:00Z\n"
        "gamma,two.zip,2026-08-01T12:00+02:00\n"
        "delta,one.zip,2026-08-01T10:00Z\n"
        "delta,one.zip,2026-08-01T10:00Z\n"
    )
    results = many(inbox, table)
    words = {
        2: "'a b'.*a-b.*'nowhere.zip'.*missing.*'yesterday'.*ISO 8601",
        4: "without a time of day",
        5: "ISO 8601",
        6: "reserved",
        7: "same to some disks|listed twice",
        8: "5 values.*3 columns",
        9: "Beta and beta",
        10: "Beta and beta",
        11: "lines 11 and 12.*same time",
        12: "lines 11 and 12.*same time",
        14: "repeats line 13",
    }
    found = {each.line: each.reason for each in results if each.result == "faulty"}
    assert found.keys() == words.keys()
    for line, pattern in words.items():
        assert re.search(pattern, found[line], re.DOTALL), (line, found[line])
    assert prompts() == {"delta": "Draw <OBJECT> one"}


@settings(max_examples=6, deadline=None)
@given(order=st.permutations(range(4)))
def test_the_last_in_time_counts_in_whatever_order(order: list[int], tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("intake")
    for name in ("one", "two", "three"):
        write_zip(folder / "in" / f"{name}.zip", {**PROMPT_FILES, "prompt.txt": f"Draw <OBJECT> {name}"})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        set_params(deadline="2026-08-01T12:00:00+00:00")
        rows = [
            "alpha,one.zip,2026-08-01T14:00:00+02:00,",
            "alpha,three.zip,2026-08-01T12:00:01Z,",
            "alpha,two.zip,2026-08-01T11:59:59,",
            "beta,two.zip,2026-07-01T10:00Z,",
        ]
        results = many(folder / "in", HEADER + "\n".join(rows[each] for each in order))
        by_row = {rows[order[each.line - 2]].split(",")[1] + each.row.team: each for each in results}
        assert {key: each.result for key, each in by_row.items()} == {
            "one.zipalpha": "filed",
            "two.zipalpha": "superseded",
            "three.zipalpha": "late",
            "two.zipbeta": "filed",
        }
        assert prompts() == {"alpha": "Draw <OBJECT> one", "beta": "Draw <OBJECT> two"}
        texts = {name: content for name, content in contents(RECEIPTS).items() if name.endswith(".md")}
        assert b"late, the deadline was 2026-08-01T12:00:00Z" in texts["alpha/2026-08-01T120001Z.md"]
        assert b"superseded, the one received 2026-08-01T12:00:00Z counts" in texts["alpha/2026-08-01T115959Z.md"]


def test_a_later_table_with_older_rows_replaces_nothing(inbox: Path):
    many(inbox, f"{HEADER}alpha,two.zip,2026-08-02T10:00Z,\n")
    (result,) = many(inbox, f"{HEADER}alpha,one.zip,2026-08-01T10:00Z,\n")
    assert (result.result, prompts()) == ("superseded", {"alpha": "Draw <OBJECT> two"})
    (result,) = many(inbox, f"{HEADER}alpha,three.zip,2026-08-03T10:00Z,\n")
    assert (result.filed.status, prompts()) == ("replaced", {"alpha": "Draw <OBJECT> three"})


def test_one_in_time_replaces_one_that_came_before_the_deadline_was_set(inbox: Path):
    many(inbox, f"{HEADER}alpha,two.zip,2026-08-02T10:00Z,\n")
    set_params(deadline="2026-08-01T12:00:00Z")
    table = f"{HEADER}alpha,one.zip,2026-08-01T10:00Z,\nalpha,two.zip,2026-08-02T10:00Z,\n"
    assert [each.result for each in many(inbox, table)] == ["filed", "late"]
    assert prompts() == {"alpha": "Draw <OBJECT> one"}


def test_one_with_errors_is_refused_and_the_one_before_counts(inbox: Path):
    write_zip(inbox / "bad.zip", {"prompt.txt": "x"})
    (inbox / "damaged.zip").write_bytes(b"PK\x03\x04 no more")
    table = f"{HEADER}alpha,one.zip,2026-08-01T10:00Z,\nalpha,bad.zip,2026-08-02T10:00Z,\n"
    table += "beta,damaged.zip,2026-08-01T10:00Z,\n"
    results = many(inbox, table)
    assert [each.result for each in results] == ["filed", "refused", "refused"]
    assert prompts() == {"alpha": "Draw <OBJECT> one"}
    assert "has no README.md" in (RECEIPTS / "alpha/2026-08-02T100000Z.md").read_text()
    assert "damaged" in (RECEIPTS / "beta/2026-08-01T100000Z.md").read_text()


def test_again_it_does_the_same_and_nothing_more(inbox: Path):
    set_params(deadline="2026-08-03T00:00:00Z")
    table = (
        f"{HEADER}alpha,one.zip,2026-08-01T10:00Z,a@example.org\nalpha,two.zip,2026-08-02T10:00Z,\n"
        "beta,three.zip,2026-08-04T10:00Z,b@example.org\ngamma,three.zip,2026-08-01T10:00Z,\n"
    )
    many(inbox, table, SubmitOptions(add=True))
    before = contents(Path())
    assert load_params().teams == ("base", "alpha", "gamma")
    results = many(inbox, table, SubmitOptions(add=True))
    assert [each.result for each in results] == ["superseded", "filed", "late", "filed"]
    assert {each.filed.status for each in results if each.filed} == {"unchanged"}
    assert contents(Path()) == before
    shutil.rmtree(RECEIPTS)
    many(inbox, table, SubmitOptions(add=True))
    assert contents(Path()) == before


def test_contacts_stay_outside_of_git(inbox: Path, capsys: pytest.CaptureFixture[str]):
    table = f'{HEADER}alpha,one.zip,2026-08-01T10:00Z,"Ada, ada@example.org"\nbeta,,x,bea@example.org\n'
    many(inbox, table)
    many(inbox, f"{HEADER}gamma,two.zip,2026-08-01T10:00Z,g@example.org\n")
    assert CONTACTS.read_text().splitlines() == [
        "team,received,contact",
        'alpha,2026-08-01T10:00:00Z,"Ada, ada@example.org"',
        "gamma,2026-08-01T10:00:00Z,g@example.org",
    ]
    assert oct(CONTACTS.stat().st_mode)[-3:] == "600"
    main(["submit", str(inbox), "--csv", str(inbox.parent / "list.csv"), "--json"])
    said = capsys.readouterr()
    assert "example.org" not in said.out + said.err
    assert not any(b"example.org" in content for name, content in contents(Path()).items() if "contacts" not in name)


def test_a_row_cannot_replace_a_baseline_or_another_team(inbox: Path):
    write_folder(inbox / "penguins", {**PROMPT_FILES, "README.md": "# x\n\nTeam: Penguins\n"})
    many(inbox, f"{HEADER}alpha,one.zip,2026-08-01T10:00Z,\nbase,one.zip,2026-08-01T10:00Z,\n")
    Path("data/submissions/base/submission.yaml").write_text("role: baseline\n")
    before = contents(SUBMISSIONS)
    table = (
        f"{HEADER}alpha,penguins,2026-08-02T10:00Z,\nbase,two.zip,2026-08-02T10:00Z,\nnew,penguins,2026-08-02T10:00Z,\n"
    )
    results = many(inbox, table)
    assert [each.result for each in results] == ["faulty", "faulty", "filed"]
    assert "'Penguins'" in results[0].reason
    assert "is a baseline" in results[1].reason
    assert {name: each for name, each in contents(SUBMISSIONS).items() if not name.startswith("new/")} == before


def named(inbox: Path, file: str, team: str) -> None:
    write_zip(inbox / file, {**PROMPT_FILES, "README.md": f"# x\n\nTeam: {team}\n", "prompt.txt": f"<OBJECT> {file}"})


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_row_of_another_team_does_not_count_in_one_table_or_in_several(inbox: Path, order: tuple[int, ...]):
    named(inbox, "first.zip", "Ants of Lima")
    named(inbox, "second.zip", "ANTS of Lima")
    named(inbox, "penguins.zip", "Penguins")
    rows = ["ants,first.zip,2026-08-01T10:00Z,\n", "ants,second.zip,2026-08-02T10:00Z,\n"]
    rows.append("ants,penguins.zip,2026-08-03T10:00Z,\n")
    results = many(inbox, HEADER + "".join(rows[each] for each in order))
    assert {rows[order[each.line - 2]][5:10]: each.result for each in results} == {
        "first": "superseded",
        "secon": "filed",
        "pengu": "faulty",
    }
    assert prompts() == {"ants": "<OBJECT> second.zip"}
    before = contents(SUBMISSIONS)
    shutil.rmtree(SUBMISSIONS)
    shutil.rmtree(RECEIPTS)
    for row in rows:
        many(inbox, HEADER + row)
    assert contents(SUBMISSIONS) == before
    many(inbox, HEADER + rows[2], SubmitOptions(replace=True))
    assert prompts() == {"ants": "<OBJECT> penguins.zip"}


def test_an_earlier_row_does_not_step_in_for_one_that_cannot_be_filed_now(inbox: Path):
    subprocess.run(["git", "init", "-q"], check=True)
    Path(".gitignore").write_text("/.pcgeval/\n")
    many(inbox, f"{HEADER}alpha,one.zip,2026-08-01T10:00Z,\n")
    table = f"{HEADER}alpha,three.zip,2026-08-03T10:00Z,\nalpha,two.zip,2026-08-02T10:00Z,\n"
    results = many(inbox, table)
    assert [each.result for each in results] == ["faulty", "faulty"]
    assert "not committed" in results[0].reason
    assert "line 2 is later" in results[1].reason
    assert prompts() == {"alpha": "Draw <OBJECT> one"}
    assert [each.result for each in many(inbox, table, SubmitOptions(force=True))] == ["filed", "superseded"]


@pytest.mark.parametrize("deadline", ["2026-08-01T12:00:00Z", "2026-08-01 14:00+02:00", "2026-08-01T12:00"])
@pytest.mark.usefixtures("inbox")
def test_the_deadline_is_in_utc_without_a_zone(deadline: str):
    set_params(deadline=deadline)
    assert load_params().intake.deadline.isoformat() == "2026-08-01T12:00:00+00:00"


@pytest.mark.parametrize("deadline", ["2026-08-01", "2026-08-01T12:00:00Z", "soon", "12"])
@pytest.mark.usefixtures("inbox")
def test_a_deadline_that_dvc_could_not_read_is_refused(deadline: str):
    Path("params.yaml").write_text(f"{yaml.safe_dump(PARAMS)}intake: {{deadline: {deadline}}}\n")
    with pytest.raises(ParamsError, match=r"intake\.deadline.*(in quotes|ISO 8601)"):
        load_params()


def test_the_deadline_holds_for_one_too(inbox: Path, capsys: pytest.CaptureFixture[str]):
    set_params(deadline="2026-08-01T12:00:00Z")
    one = [str(inbox / "one.zip"), "--team", "alpha"]
    assert main(["submit", *one]) == 2
    assert "--received" in capsys.readouterr().err
    assert main(["submit", *one, "--received", "2026-08-01T12:00:01Z"]) == 2
    assert main(["submit", *one, "--received", "at noon"]) == 2
    assert not (SUBMISSIONS / "alpha").exists()
    assert main(["submit", *one, "--received", "2026-08-01T12:00", "--json"]) == 0
    receipt = json.loads(capsys.readouterr().out)["receipt"]
    assert (receipt["received"], receipt["result"]) == ("2026-08-01T12:00:00Z", "filed")
    assert main(["submit", *one, "--add"]) == 0  # the same files, as they were received
    assert load_params().teams == ("base", "alpha")
    assert main(["submit", str(inbox / "two.zip"), "--team", "base", "--as-baseline"]) == 0


def test_a_receipt_has_the_same_bytes_every_time(inbox: Path):
    one = ["submit", str(inbox / "one.zip"), "--team", "alpha", "--received", "2026-08-01T12:00Z"]
    assert main(one) == 0
    (text,) = RECEIPTS.rglob("*.md")
    before = contents(RECEIPTS)
    for words in (one, one[:-2], [*one, "--force"]):
        assert main(words) == 0
        assert contents(RECEIPTS) == before
    digest = sha256((inbox / "one.zip").read_bytes()).hexdigest()
    assert f"SHA-256 of the file: `{digest}`" in text.read_text()


def test_the_command_lists_rows_and_findings_on_stdout(inbox: Path, capsys: pytest.CaptureFixture[str]):
    write_zip(inbox / "bad.zip", {"prompt.txt": "x"})
    file = inbox.parent / "list.csv"
    file.write_text(
        f"{HEADER}alpha,one.zip,2026-08-01T10:00,\nbeta,bad.zip,2026-08-01T10:00Z,\n\x1b[2J,one.zip,2026-08-01T10:00Z,\n"
    )
    assert main(["submit", str(inbox), "--csv", str(file)]) == 1
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "list.csv:2: alpha: filed data/submissions/alpha"
    assert lines[1].startswith("list.csv:3: beta: refused")
    assert lines[2].startswith("  error: has no README.md")
    assert any(line.startswith("list.csv:4: ") for line in lines)
    assert lines[-1] == "times without a zone were taken as UTC: lines 2"
    assert "\x1b" not in said.out + said.err
    assert "1 faulty, 1 filed, 1 refused" in said.err
    assert main(["submit", str(inbox), "--csv", str(file), "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert [each["result"] for each in values["rows"]] == ["filed", "refused", "faulty"]
    assert [each.get("status") for each in values["rows"]] == ["unchanged", "refused", None]
    assert values["taken_as_utc"] == [2]
    assert "findings" not in values["rows"][0]["receipt"]
    assert main(["submit", str(inbox), "--csv", str(file), "--team", "x"]) == 2


def test_a_name_that_several_people_use_is_said(inbox: Path, capsys: pytest.CaptureFixture[str]):
    rows = "alpha,one.zip,2026-08-01T10:00Z,Ada@example.org\nbeta,two.zip,2026-08-01T10:00Z,bea@example.org\n"
    later = "alpha,three.zip,2026-08-02T10:00Z,ada@example.org\nbeta,three.zip,2026-08-02T10:00Z,mallory@example.org\n"
    file = inbox.parent / "list.csv"
    for table, words in ((rows, ""), (later, "several contacts"), (rows + later, "several contacts")):
        file.write_text(HEADER + table)
        assert main(["submit", str(inbox), "--csv", str(file)]) == 0
        said = capsys.readouterr().out
        assert ("several contacts" in said) == bool(words)
        assert not words or said.endswith(": beta\n")
        assert "example.org" not in said


def test_git_must_ignore_the_contacts(inbox: Path):
    subprocess.run(["git", "init", "-q"], check=True)
    table = f"{HEADER}alpha,one.zip,2026-08-01T10:00Z,a@example.org\n"
    with pytest.raises(IntakeError, match=r"\.gitignore"):
        many(inbox, table)
    assert not SUBMISSIONS.exists()
    Path(".gitignore").write_text("/.pcgeval/\n")
    assert many(inbox, table)[0].result == "filed"


def test_without_a_folder_nothing_is_read(inbox: Path):
    with pytest.raises(IntakeError, match="not a folder"):
        many(inbox / "one.zip", HEADER)


def test_killed_at_any_moment_another_run_ends_the_same(inbox: Path):
    set_params(deadline="2026-08-03T00:00:00Z")
    table = HEADER + "".join(
        f"team{number},{name}.zip,2026-08-0{day}T10:00Z,x{number}@example.org\n"
        for number in range(3)
        for day, name in enumerate(("one", "two", "three"), start=1)
    )
    start = Path("params.yaml").read_bytes()

    def run() -> None:
        many(inbox, table, SubmitOptions(add=True))

    run()
    whole = contents(Path())
    for number in range(8):
        for left in (Path("data"), Path(".pcgeval")):
            shutil.rmtree(left)
        Path("params.yaml").write_bytes(start)
        child = os.fork()
        if child == 0:
            try:
                run()
            finally:
                os._exit(0)
        time.sleep(number * 0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        run()
        assert {name: each for name, each in contents(Path()).items() if not name.endswith(".part")} == whole


def test_no_stage_depends_on_the_deadline():
    stages = yaml.safe_load((Path(__file__).parents[2] / "dvc.yaml").read_text())["stages"]
    assert not [name for name, stage in stages.items() for each in stage.get("params", []) if "intake" in str(each)]


GOOD_ROW = ["alpha", "one.zip", "2026-08-01T10:00Z", "x"]
CELL = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *(
                "alpha",
                "team",
                "file",
                "received",
                "contact",
                "one.zip",
                "in",
                "..",
                "a/../b",
                "\0",
                '"',
                "'",
                "\r",
                "\n",
            ),
            *("2026-08-01T10:00Z", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00", "T", "\ufeff", "\u2028", "\ud800"),
        ]
    ),
)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.lists(CELL, max_size=5) | st.just(GOOD_ROW), max_size=4),
    sign=st.sampled_from(",;\t"),
    has_header=st.booleans(),
)
def test_no_table_ends_in_a_traceback(
    rows: list[list[str]], sign: str, has_header: bool, tmp_path_factory: pytest.TempPathFactory
):
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    write_zip(folder / "in" / "one.zip", PROMPT_FILES)
    header = [["team", "file", "received", "contact"]] if has_header else []
    text = "\n".join(sign.join(row) for row in header + rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for left in (Path("data"), Path(".pcgeval")):
            shutil.rmtree(left, ignore_errors=True)
        try:
            results = many(folder / "in", text.encode(errors="surrogatepass"))
        except PcgevalError:
            return
        assert [each.line for each in results] == sorted(each.line for each in results)
        assert {path.name for path in folder.iterdir()} <= {"in", "list.csv", "data", ".pcgeval"}
