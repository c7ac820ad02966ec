"""Published tables: every digit is computed again, and every changed digit is noticed."""

import json
import os
from pathlib import Path

import pytest
from scoring_examples import OFFICIAL_NAMES, golden_text

from pcgeval import PcgevalError, ScoringRules
from pcgeval.core import stage_files
from pcgeval.core.errors import FileError
from pcgeval.scoring import rescore as tables
from pcgeval.scoring.rescore import holds_tables, read_tables, rescore

REFERENCE = Path(os.environ.get("PCGEVAL_REFERENCE", Path(__file__).parents[2] / "../shared/reference"))
PUBLISHED = REFERENCE / "chatgpt4pcg-2024"
RULES = ScoringRules(official_quirks=True)


@pytest.fixture
def published(tmp_path):
    """The official files of a golden case, as a web page would publish them."""
    folder = tmp_path / "published"
    folder.mkdir()
    for name in OFFICIAL_NAMES:
        (folder / name).write_bytes(golden_text("t3_random", name).encode())
    return folder


def reproduce(folder, rules=RULES):
    found = rescore([folder], folder.parent / "out", rules)
    return found, found.reproductions[0]


def replace_in(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published tables of 2024 are not here")
def test_the_published_final_of_2024_to_the_last_digit(tmp_path):
    found = rescore([PUBLISHED], tmp_path)
    assert found.reproduced
    assert found.reproductions[0].compared == {
        "trial score": 2600,
        "letter score": 260,
        "weight": 26,
        "sum": 1,
        "place": 10,
    }
    assert found.ranking.winners == ("TheAlmostEngineer",)
    assert [row.team for row in found.ranking.rows if row.status == "baseline"] == [
        "baseline_zero_shot_multi_turn",
        "baseline_zero_shot",
    ]
    assert [row.team for row in found.ranking.rows if row.status == "disqualified"] == ["zergy"]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published tables of 2024 are not here")
def test_the_published_tables_of_2024_are_written_again(tmp_path):
    rescore([PUBLISHED], tmp_path)
    for name in ("constants.json", "trial_scores.csv", "character_scores.csv"):
        written = (tmp_path / PUBLISHED.name / name).read_text().splitlines()
        assert sorted(written) == sorted((PUBLISHED / name).read_text().splitlines())  # the teams stood otherwise


def test_golden_tables_are_reproduced(published):
    found, reproduction = reproduce(published)
    assert found.reproduced
    assert reproduction.compared == {"trial score": 780, "letter score": 78, "place": 3, "weight": 26, "sum": 1}


@pytest.mark.parametrize("name", ["trial_scores.csv", "constants.json"])
def test_tables_are_recognised_by_two_files(published, name):
    assert holds_tables(published)
    (published / name).unlink()
    assert not holds_tables(published)


@pytest.mark.parametrize(
    ("name", "old", "new", "kind"),
    [
        ("trial_scores.csv", '"alpha","A",1,"0.0', '"alpha","A",1,"0.1', "trial score alpha A 1"),
        ("character_scores.csv", '"alpha","A","0.0021', '"alpha","A","0.0022', "letter score alpha A"),
        ("constants.json", '"character":"A","weight":"0.', '"character":"A","weight":"1.', "weight A"),
        ("constants.json", '"competitionScore":"0.', '"competitionScore":"1.', "sum of the scores"),
        (
            "prompt_scores_ranks.csv",
            '900558","0.00477207101309351977",1',
            '900558","0.00477207101309351977",2',
            "place alpha",
        ),
        ("prompt_scores_ranks.csv", '"gamma",', '"delta",', "place gamma"),
    ],
)
def test_a_changed_digit_is_noticed(published, name, old, new, kind):
    replace_in(published / name, old, new)
    found, reproduction = reproduce(published)
    assert not found.reproduced
    assert reproduction.differing >= 1
    assert reproduction.differences[0].startswith(f"{kind}: published ")


@pytest.mark.parametrize("name", ["character_scores.csv", "prompt_scores_ranks.csv"])
def test_a_line_too_many_is_noticed(published, name):
    path = published / name
    path.write_text(path.read_text() + "\n" + path.read_text().split("\n")[-1].replace("gamma", "delta"))
    _, reproduction = reproduce(published)
    assert reproduction.differing == 1
    assert reproduction.differences[0].endswith(", computed none")


def test_a_changed_measurement_changes_what_depends_on_it(published):
    text = (published / "trial_scores.csv").read_text().split("\n")
    fields = text[1].split(",")
    fields[4] = '"0.5"' if fields[4] != '"0.5"' else '"0.25"'
    text[1] = ",".join(fields)
    (published / "trial_scores.csv").write_text("\n".join(text))
    _, reproduction = reproduce(published)
    assert reproduction.differing > 30  # the letter's weight, its 30 trials, and all places


def test_differences_are_counted_but_not_all_kept(published, monkeypatch):
    monkeypatch.setattr(tables, "_SHOWN", 2)
    replace_in(published / "trial_scores.csv", '"alpha","A",1,', '"alpha","A",1,"9')
    replace_in(published / "trial_scores.csv", '"9"', '"9')
    _, reproduction = reproduce(published)
    assert len(reproduction.differences) <= 2


def test_the_order_of_the_lines_does_not_matter(published):
    header, *lines = (published / "trial_scores.csv").read_text().split("\n")
    (published / "trial_scores.csv").write_text("\n".join([header, *reversed(lines)]))
    assert reproduce(published)[0].reproduced


def result_json(published, *, beta_name="beta", beta_rank=-1):
    """A result.json as the web page has it: a baseline, a disqualified team, numbers cut to some digits."""
    value = [
        {"teamName": "alpha", "normalizedPromptScore": 40.8210994527029, "promptScore": 0.00477207101309, "rank": 1},
        {
            "teamName": beta_name,
            "normalizedPromptScore": 36.8671714056665,
            "promptScore": 0.004309849,
            "rank": beta_rank,
        },
        {"teamName": "gamma", "normalizedPromptScore": 22.31172914, "promptScore": 0.002608287315, "rank": 2},
        {"teamName": "cheat", "normalizedPromptScore": -1, "promptScore": -1, "rank": -2},
    ]
    (published / "prompt_scores_ranks.csv").unlink()
    (published / "result.json").write_text(json.dumps(value))


def test_the_web_page_says_who_was_a_baseline_or_disqualified(published):
    result_json(published)
    found, reproduction = reproduce(published, ScoringRules())
    assert reproduction.differences == []
    assert [(row.team, row.status) for row in found.ranking.rows] == [
        ("alpha", "ranked"),
        ("beta", "baseline"),
        ("gamma", "ranked"),
        ("cheat", "disqualified"),
    ]


def test_a_team_under_another_name_is_known_by_its_digits(published):
    result_json(published, beta_name="Weak Baseline (Zero-Shot)")
    found, _ = reproduce(published, ScoringRules())
    assert found.reproduced
    assert found.ranking.rows[1].status == "baseline"


def test_a_score_with_many_published_digits_is_compared(published):
    result_json(published)
    replace_in(published / "result.json", "0.004309849", "0.00430984900000000000000000000000000000000000000001")
    found, reproduction = reproduce(published, ScoringRules())
    assert not found.reproduced
    assert reproduction.differences[0].startswith("place beta: published ")


def test_another_published_rank_is_noticed(published):
    result_json(published, beta_rank=2)
    _, reproduction = reproduce(published, ScoringRules())
    assert [difference.split(":")[0] for difference in reproduction.differences] == ["place gamma"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: text.replace('"stabilityScore"', '"x"'), "stabilityScore: Field required"),
        (lambda text: text.replace('"alpha","A",1,', '"alpha","A",11,', 1), "has 10 lines, not trials 1 to 10"),
        (lambda text: text.replace('"alpha","A",1,', '"alpha","A",one,', 1), "trial: .*integer.*'one'"),
        (lambda text: "\n".join(text.split("\n")[:-1]), "letter Z: has 9 lines"),
        (lambda text: text + '\n"alpha","a",1,"0","0","0","0"', "the letter 'a'"),
        (lambda text: text + "\n1,2,3", "found None"),
        (lambda text: text + '\n"alpha","A",1,"0","0","0","0","0"', r"team.*: .*found \['0'\]"),
        (lambda text: text + '\n"alpha', "not a CSV"),
        (lambda text: text.replace('"1"', '"1e999"', 1), "less than or equal to 1E[+]400, found '1e999'"),
        (lambda text: text.replace('"1"', '"1e-999999"', 1), "2000 decimal places, found '1e-999999'"),
        (lambda text: text.replace('"1"', '"NaN"', 1), "finite number"),
        (lambda text: text.replace('"1"', '"' + "9" * 10_000 + '"', 1), "less than or equal to"),
        (lambda text: text.replace('"0.16405986530296204"', '"0.5"', 1), "another diversity"),
        (lambda _: "", "no lines"),
        (lambda text: text + '\n"' + "x" * 200_000, "not a CSV"),
    ],
)
def test_a_malformed_table_is_refused_by_name(published, change, complaint):
    path = published / "trial_scores.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(PcgevalError, match=complaint) as caught:
        read_tables(published, RULES)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weights": [1]}', "[" * 100_000])
def test_malformed_constants_are_refused(published, content):
    (published / "constants.json").write_text(content)
    with pytest.raises(FileError, match=r"constants\.json"):
        reproduce(published)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[1]",
        '[{"teamName": "a"}]',
        '[{"teamName": "a", "rank": 1.5}]',
        '[{"teamName": "a", "rank": 1, "promptScore": 1e9}]',
        '[{"teamName": "a", "rank": 1, "promptScore": 1, "normalizedPromptScore": NaN}]',
    ],
)
def test_a_malformed_web_page_is_refused(published, content):
    (published / "result.json").write_text(content)
    with pytest.raises(FileError, match=r"result\.json"):
        read_tables(published, RULES)


def test_a_large_table_is_refused_unread(published, monkeypatch):
    monkeypatch.setattr(stage_files, "MAX_FILE_BYTES", 100)
    with pytest.raises(FileError, match="100 bytes"):
        read_tables(published, RULES)
