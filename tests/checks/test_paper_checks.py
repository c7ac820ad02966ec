"""Checks on reproductions: each from what its criterion says, and against what strangers may leave in a folder."""

import json
import os
import re

import pytest
from hypothesis import given, strategies as st
from rubric_trees import json_values

from pcgeval.checks import LeafCheck, known_check, run_check
from pcgeval.checks.evidence import Document, Evidence, PaperEvidence, Undecided

RATES = {"A": 0.5, "B": 0.25, "note": "x"}
RESULTS = {"rates": RATES, "runs": [{"loss": 3}, {"loss": 1e-9}], "trials": 2000}
TABLE = "letter,rate,F1/macro\nA,0.5,7\nB, 0.25 ,y\nB,0.75,8\nC\nC,0.1,9"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "README.md").write_text("# Mine\n\nSome words here.")
    (tmp_path / "reproduce.sh").write_text("python3 main.py")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "results.json").write_text(json.dumps(RESULTS))
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "table.tsv").write_text("name\tloss\nonly\t2.5\n")
    return tmp_path


def ran(folder, log="line one\nTotal: 97 % of 10\n", **more):
    return PaperEvidence(folder, **{"log": log, "started_at": 0.0, "exit_code": 0, **more})


def decide(evidence, name, /, **arguments):
    if name.startswith("result"):
        arguments = {"path": "out/results.json", **arguments}
    return run_check(known_check(LeafCheck(name, arguments)), evidence)


FINDINGS = [
    ("file_exists", {"path": "README.md"}, 1, "README.md has 24 bytes"),
    ("file_exists", {"path": "out/missing.txt"}, 0, "out/missing.txt is missing"),
    ("file_words", {"path": "README.md", "at_least": 5}, 1, "README.md has 5 words; 5 are asked for"),
    ("reproduce_succeeded", {}, 1, "reproduce.sh ended with exit code 0"),
    ("log_matches", {"pattern": "total:*%"}, 1, "printed: Total: 97 % of 10"),
    ("log_matches", {"pattern": "%*total"}, 0, "no line has '%*total'"),
    ("result_value", {"key": "trials", "at_most": 1999}, 0, "trials is 2000; asked for: at most 1999"),
    ("result_value", {"key": "rates/A", "at_least": 0.4, "at_most": 0.6}, 1, "is 0.5; asked for: at least 0.4 and"),
    ("result_value", {"key": "runs/1/loss", "at_most": 0.1}, 1, "runs/1/loss is 1e-09"),
    ("result_value", {"key": "runs/2/loss"}, 0, "out/results.json has not the key runs/2/loss"),
    ("result_value", {"key": "rates/note"}, 0, "has not a number at rates/note, but 'x'"),
    ("result_value", {"key": "A/rate", "path": "table.csv", "at_least": 0.5}, 1, "table.csv: A/rate is 0.5"),
    ("result_value", {"key": "C/rate", "path": "table.csv"}, 0, "has not a number at C/rate, but a list"),
    ("result_value", {"key": "loss", "path": "table.tsv", "at_most": 2.5}, 1, "table.tsv: loss is 2.5"),
    ("result_order", {"larger": "rates/A", "smaller": "rates/B"}, 1, "rates/A is 0.5, rates/B is 0.25"),
    ("result_entries", {"key": "rates", "at_least": 2}, 1, "2 figures under rates; 2 are asked for"),
    ("result_entries", {"key": "trials", "at_least": 1}, 1, "1 figures under trials"),
    ("result_entries", {"key": "F1/macro", "path": "table.csv", "at_least": 4}, 0, "3 figures under F1/macro"),
]


@pytest.mark.parametrize(("name", "arguments", "score", "explanation"), FINDINGS)
def test_findings(folder, name, arguments, score, explanation):
    result = decide(ran(folder), name, **arguments)
    assert (result.score, explanation in result.explanation) == (score, True), result


@given(st.text("ab*", min_size=1, max_size=6), st.lists(st.text("abAB", max_size=8), max_size=3))
def test_a_pattern_matches_as_by_a_regular_expression(tmp_path_factory, pattern, lines):
    literal = ".*".join(re.escape(part) for part in pattern.split("*"))
    expected = any(re.search(literal, line, re.IGNORECASE) for line in lines)
    evidence = ran(tmp_path_factory.getbasetemp(), "".join(f"{line}\n" for line in lines))
    assert decide(evidence, "log_matches", pattern=pattern).score == expected


def test_a_pattern_with_many_gaps_takes_linear_time(folder):
    assert decide(ran(folder, "a" * 1_000_000), "log_matches", pattern="a*" * 400 + "b").score == 0


NEED_A_RUN = {name: arguments for name, arguments, *_ in FINDINGS if name.startswith(("reproduce", "log", "result"))}


@pytest.mark.parametrize(("name", "arguments"), NEED_A_RUN.items())
def test_without_a_run_what_needs_one_is_undecided_and_without_a_script_it_fails(folder, name, arguments):
    with pytest.raises(Undecided, match=r"reproduce\.sh was not run"):
        decide(PaperEvidence(folder), name, **arguments)
    (folder / "reproduce.sh").unlink()
    assert decide(PaperEvidence(folder), name, **arguments).explanation == "reproduce.sh is missing"


@pytest.mark.parametrize("ending", [{"exit_code": 139}, {"exit_code": None, "reason": "was stopped after 5 s"}])
def test_only_a_run_of_ours_that_ended_well_has_succeeded(folder, ending):
    assert decide(ran(folder, **ending), "reproduce_succeeded").score == 0
    with pytest.raises(Undecided):  # a log that came with the submission does not say that it succeeded
        decide(ran(folder, "ended with exit code 0", exit_code=None), "reproduce_succeeded")


def test_only_results_of_the_run_count(folder):
    path = folder / "out" / "results.json"
    os.utime(path, (1000, 1000))
    assert decide(ran(folder, started_at=1000.0), "result_value", key="trials").score == 1
    old = decide(ran(folder, started_at=1000.5), "result_value", key="trials")
    assert (old.score, "older than the run" in old.explanation) == (0, True)


HUGE = b'{"trials": ' + b"9" * 10_000 + b"}"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b'{"trials": 1e999}', HUGE, b" " * 4_000_001])
@pytest.mark.parametrize("name", ["results.json", "results.csv", "results"])
def test_garbled_results_fail_and_never_raise(folder, content, name):
    (folder / name).write_bytes(content)
    result = decide(ran(folder), "result_value", path=name, key="trials")
    assert (result.score, len(result.explanation) < 400) == (0, True)
    assert decide(ran(folder), "result_entries", path=name, key="trials", at_least=2).score == 0


@given(json_values("a", "0", ""))
def test_any_json_is_decided(tmp_path_factory, anything):
    folder = tmp_path_factory.mktemp("any")
    (folder / "r.json").write_text(json.dumps(anything))
    for key in ("a", "0", "a/0", "/", "0/0/0"):
        assert decide(ran(folder), "result_value", path="r.json", key=key, at_least=-1e9).score in (0, 1)


def test_links_are_not_followed(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "results.json").write_text('{"trials": 1}')
    (folder / "linked").symlink_to(outside)
    (folder / "link.json").symlink_to(outside / "results.json")
    os.mkfifo(folder / "fifo.json")
    for path, fault in (("linked/results.json", "a link"), ("link.json", "a link"), ("fifo.json", "not a regular")):
        assert f"{path} is {fault}" in decide(ran(folder), "result_value", path=path, key="trials").explanation


def test_blacklisted_addresses_are_found_in_any_file(folder):
    evidence = ran(folder, blacklist=("https://Example.org/code", "https://other.org"))
    assert decide(evidence, "without_blacklisted").score == 1
    deep = folder
    for _ in range(300):
        deep /= "d"
        deep.mkdir()
    (deep / "setup.bin").write_bytes(b"\xff\x00git clone HTTPS://example.org/CODE.git")
    assert decide(ran(folder, blacklist=("https://", "/")), "without_blacklisted").score == 1  # no addresses
    assert decide(evidence, "without_blacklisted").score == 0


def test_another_repository_whose_name_begins_alike_is_not_the_blacklisted_one(folder):
    evidence = ran(folder, blacklist=("https://github.com/them/code",))
    (folder / "README.md").write_text("data from github.com/them/code-datasets and github.com/them/code2")
    assert decide(evidence, "without_blacklisted").score == 1
    (folder / "README.md").write_text("see github.com/them/code/tree/main")
    assert decide(evidence, "without_blacklisted").score == 0


def test_too_much_to_look_through_is_undecided(folder):
    with (folder / "huge").open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(Undecided, match="more than 64000000 bytes"):
        decide(ran(folder, blacklist=("https://nowhere.example",)), "without_blacklisted")
    (folder / "late.py").write_text("# from github.com/Them/code")  # what is too large hides nothing
    result = decide(ran(folder, blacklist=("https://github.com/them/code/",)), "without_blacklisted")
    assert (result.score, result.explanation) == (0, "'late.py' names https://github.com/them/code/")


def test_what_we_cannot_read_or_a_check_for_other_evidence_is_undecided(folder):
    with pytest.raises(Undecided, match="cannot be read"):
        decide(ran(folder), "file_exists", path="x" * 300)
    document = Document("README.md", "read", "text")
    with pytest.raises(Undecided, match="for an attempt to reproduce a paper"):
        decide(Evidence("team", 10, document, document), "reproduce_succeeded")
    with pytest.raises(Undecided, match="for a submission to the competition"):
        decide(ran(folder), "readme_length")
