"""The pages of the report: what stands where, that they load nothing, and what broken files are called."""

import re
import runpy
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from evaluated_round import PARAMS
from hypothesis import given, strategies as st
from lxml import html
from page_for_tests import Page, checked, dead_links, part, ranking_row, team_page
from params_for_tests import contents, file_states
from PIL import Image
from pyarrow import parquet

from pcgeval import score_level
from pcgeval.bulk.level_table import level_table
from pcgeval.cli.main import main
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_json
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import EXAMPLE_LETTERS, RANKING_JSON, REPORT, Trial
from pcgeval.formats.params import Team
from pcgeval.formats.results import RankingFile
from pcgeval.formats.stages import LabelProbability
from pcgeval.formats.trials import SuppliedBlocks
from pcgeval.report.markup import figure
from pcgeval.report.render import CACHE, collect, write_report

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def evaluation(evaluated):
    return collect(PARAMS, evaluated)


@pytest.fixture(scope="module")
def single(evaluated, tmp_path_factory):
    file = tmp_path_factory.mktemp("single") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(evaluated)
        main(["ranking", "--single-file", str(file)])
    return file.read_text("utf-8")


def test_every_link_has_a_target_and_nothing_else_is_loaded(index, pages, single):
    assert dead_links(index) == []
    for markup in pages.values():
        checked(markup)
    whole = checked(single)
    for name in PARAMS.teams:
        assert set(Page(team_page(pages, name)).all("id")) <= set(whole.all("id"))
    script = (index.parent / "report.js").read_text("utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(", script)


def test_the_first_screen_says_who_won_by_how_much_and_shows_levels(pages, evaluated):
    first, second = (float(row.normalised) for row in RankingFile.read(evaluated / RANKING_JSON).teams[:2])
    head = pages["index.html"].partition('<section id="ranking"')[0]
    assert f"The Builders wins with {first:.2f} % of all points, {first - second:.2f} more than Zero-shot.<" in head
    best = re.findall(r'<a class="level frame" href="teams/builders\.html#([^"]+)"', head)
    assert best == ["builders.large.I.1", "builders.large.T.1"]


def test_without_a_winner_the_baseline_is_named(evaluation):
    teams = tuple(replace(team, row=team.row.model_copy(update={"winner": False})) for team in evaluation.teams)
    points = f"{float(evaluation.scored_teams[0].row.normalised):.2f} % of all points"
    verdict = replace(evaluation, teams=teams).verdict
    assert verdict.startswith(f"No team beats the baseline. The best team, The Builders, has {points}; Zero-shot has ")


def test_a_title_that_another_team_has_is_followed_by_the_name(workspace):
    teams = {**PARAMS.teams, "zero-shot": Team(role="baseline", title="The Builders")}
    page = write_report(PARAMS.model_copy(update={"teams": teams}), workspace, workspace / REPORT).read_text("utf-8")
    for name in ("zero-shot", "builders"):
        assert f">The Builders ({name})</a>" in page


def test_the_ranking_has_one_unit_and_marks_baselines(pages, evaluation):
    for team in evaluation.scored_teams:
        markup = ranking_row(pages["index.html"], team.name)
        total = float(team.row.normalised)
        assert float(re.search(r"<b title[^>]*>([0-9.]+)</b>", markup)[1]) == round(total, 2)
        numbers = re.findall(r'<td class="number">([0-9.]+)</td>', markup)[:2]
        assert sum(map(float, numbers)) == pytest.approx(total, abs=0.011)
        assert ('<td class="rank"><small>baseline</small>' in markup) == (team.name == "zero-shot")
        letters = [letter for model in team.models for letter in model.letters]
        assert sum(evaluation.letter_points(letter) for letter in letters) == pytest.approx(total)
        trials = [(letter, trial) for letter in letters for trial in letter.trials]
        assert sum(evaluation.trial_points(*trial) for trial in trials) == pytest.approx(total)
        assert f'<td class="number">{team.row.recognised} of 8</td>' in markup


def test_a_disqualified_team_stands_below_the_ranking_with_its_reason_and_what_it_would_have_had(pages):
    rows = re.findall(r'<tr class="(\w+)"', part(pages["index.html"], "ranking"))
    assert rows == ["ranked", "baseline", "disqualified"]
    text = " ".join(html.fromstring(ranking_row(pages["index.html"], "cheats")).text_content().split())
    assert re.fullmatch(r"out The Cheats ?disqualified used a picture of the letter [0-9.]+ would have had .*", text)
    assert re.search(r"it would have had <b>[0-9.]+ %</b> of all points", team_page(pages, "cheats"))


def test_hand_made_letters_are_a_reference_and_no_team(workspace, pages):
    assert "Hand-made" not in pages["index.html"]
    letter = workspace / EXAMPLE_LETTERS / "I.txt"
    letter.parent.mkdir(parents=True)
    letter.write_text((REPOSITORY / EXAMPLE_LETTERS / "I.txt").read_text())
    markup = write_report(PARAMS, workspace, workspace / REPORT).read_text("utf-8")
    similarity = score_level(letter.read_text(), "I", physics=PARAMS.physics).similarity
    (level,) = html.fromstring(markup).get_element_by_id("reference").findall(".//li")
    assert " ".join(level.text_content().split()) == f"I 1.00 · {similarity:.2f}"
    letter.write_text("no calls")
    with pytest.raises(FileError, match=r"I\.txt"):
        write_report(PARAMS, workspace, workspace / REPORT)


def test_a_change_of_one_submission_makes_one_page_and_a_lost_cache_changes_no_byte(workspace):
    write_report(PARAMS, workspace, workspace / REPORT)
    kept, written = (file_states(workspace / place) for place in (CACHE, REPORT))
    prompt = workspace / "data/submissions/builders/prompt.txt"
    prompt.write_text(prompt.read_text() + "Build well.\n")
    ranking = read_json(workspace / RANKING_JSON)
    write_json(workspace / RANKING_JSON, {**ranking, "result": {**ranking["result"], "sha256": "c" * 64}})
    write_report(PARAMS, workspace, workspace / REPORT)

    def changed(place, before):
        return {name for name, state in file_states(workspace / place).items() if state != before.get(name)}

    assert changed(CACHE, kept) == {"builders.html"}
    assert changed(REPORT, written) == {"teams/builders.html", "tables/ranking.json"}
    assert "Build well." in (workspace / REPORT / "teams/builders.html").read_text("utf-8")
    report = contents(workspace / REPORT)
    (workspace / CACHE / "builders.html").write_bytes(b"torn")
    (workspace / CACHE / "levels.parquet").unlink()
    write_report(PARAMS, workspace, workspace / REPORT)
    assert contents(workspace / REPORT) == report


def test_a_team_s_page_begins_with_its_levels_and_every_trial_has_a_picture_or_a_reason(pages):
    markup = team_page(pages, "builders")
    assert re.findall(r"<h2>([^<]+)</h2>", markup) == ["Levels", "Why it lost points", "Rubric grade", "Submission"]
    tree = html.fromstring(markup)
    ids = [[item.get("id") for item in gallery] for gallery in tree.find_class("levels")]
    assert ids == [[f"builders.{model}.{letter}" for letter in "IT"] for model in ("small", "large")]
    tiles = [" ".join(item.text_content().split()) for item in tree.find_class("levels")[0]]
    assert tiles == ["I0 one level alone has no diversity", "no levelT0 failed: time limit"]
    names = [link.find("svg").get("aria-label") for link in tree.find_class("level")]
    assert any(name.startswith("I 1, The Builders, large: 3 blocks, 0 moved") for name in names)
    assert all(re.match(r"[IT] [12]\b.*: \d+ blocks", name) for name in names)
    for team in PARAMS.teams:
        rows = html.fromstring(team_page(pages, team)).find_class("trial")
        assert len(rows) == len(PARAMS.models) * 4
        assert all(bool(row.xpath(".//svg/path")) != ("failed: " in row.text_content()) for row in rows)
    text = Page(markup).text
    reasons = ("took more than 500 s", "Width boundary is intruded", "no diversity")
    for words in (*reasons, "calls: b31 9, b13 9, b31 9"):
        assert words in text


def changed(evaluation, change):
    """Return an evaluation with other trials."""

    def letters(model):
        return tuple(replace(letter, trials=tuple(map(change, letter.trials))) for letter in model.letters)

    return replace(
        evaluation,
        teams=tuple(
            replace(team, models=tuple(replace(model, letters=letters(model)) for model in team.models))
            for team in evaluation.teams
        ),
    )


def test_every_kind_of_zero_says_why(evaluation):
    _, zero_shot, cheats = evaluation.teams
    level = zero_shot.models[1].letters[0]
    trial = level.trials[0]
    assert level.why_zero(trial) == "two equal levels have no diversity"
    for change, words in (
        ({"stability": 0.0, "score": Decimal(0)}, "no block stayed in place"),
        ({"similarity": 0.0, "score": Decimal(0)}, "similarity 0"),
        ({"stability": 0.0, "level": trial.level.model_copy(update={"types": ()}), "score": Decimal(0)}, "is empty"),
    ):
        assert words in level.why_zero(replace(trial, **change))
    assert cheats.models[1].letters[0].why_zero(trial) is None, "it has no scores"


def test_the_gallery_has_what_models_built_themselves_and_begins_with_what_a_person_recognises(evaluation):
    shown = [(level.team.name, level.trial.trial) for level in evaluation.own_levels("I")]
    assert shown == [("builders", Trial("I", 1)), ("zero-shot", Trial("I", 1))]

    def supplied(trial):
        """The towers are the submission's, and of the others half but one."""
        blocks = len(trial.level.types) if trial.level else 0
        counts = SuppliedBlocks(blocks, blocks - 1 if blocks == 3 else 1)
        return replace(trial, usage=replace(trial.usage, supplied=counts))

    others = changed(evaluation, supplied).own_levels("I")
    assert [(level.team.name, len(level.trial.level.types)) for level in others] == [("builders", 4), ("zero-shot", 4)]

    def recognised(trial):
        """The levels of the second trial are recognised, though others look more like their letter."""
        if not trial.level:
            return trial
        similarity, likeliest = (0.3, 0.3) if trial.trial.number == 2 else (0.9, 0.95)
        probabilities = (LabelProbability(label="Z", probability=likeliest),)
        return replace(trial, similarity=similarity, stability=1.0, probabilities=probabilities)

    better = changed(evaluation, recognised)
    assert all(level.trial.trial.number == 2 and level.trial.is_recognised for level in better.own_levels("I"))
    assert [level.trial.trial.number for level in better.showcase] == [2, 2]


def test_the_picture_in_readme_shows_the_present_demo():
    picture = runpy.run_path(str(REPOSITORY / "docs/picture.py"))
    with Image.open(picture["PICTURE"]) as image:
        assert image.info["shows"] == picture["shown"](), "run `make picture`"


def test_the_same_files_give_the_same_bytes_and_a_fault_leaves_the_old_ones(evaluated, index, tmp_path):
    elsewhere, out = shutil.copytree(evaluated, tmp_path / "other" / "place"), tmp_path / "out"
    write_report(PARAMS, elsewhere, out)
    before = contents(out)
    assert before == contents(index.parent)
    (elsewhere / RANKING_JSON).unlink()
    with pytest.raises(FileError):
        write_report(PARAMS, elsewhere, out)
    assert contents(out) == before


def test_a_table_has_all_trials_with_the_columns_of_evaluate(index):
    rows = parquet.read_table(index.parent / "tables" / "levels.parquet").to_pylist()
    common = level_table([], "", None).column_names
    assert list(rows[0])[: len(common)] == common
    assert {(row["model"], row["team"]) for row in rows} == {(m, t) for m in PARAMS.models for t in PARAMS.teams}
    assert all((row["reason"] is None) == (row["failed_stage"] is None) for row in rows)
    scored = [row for row in rows if row["score"]]
    assert scored
    assert all(round(row[f"p_{row['letter']}"], 7) == row["similarity"] for row in scored)
    assert all(row["engine"] and row["classifier"] and row["blocks"] for row in scored)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results/official/large/trial_scores.csv", b"\xff\xfe"),
        ("data/stability/large/builders/trials.json", b"[" * 100_000),
        ("data/raw/large/builders/T/builders_T_1.txt", None),
        ("data/grades/cheats/grade.json", b'{"a": NaN}'),
    ],
)
def test_a_broken_or_missing_file_is_named(workspace, name, content):
    (workspace / name).unlink()
    if content is not None:
        (workspace / name).write_bytes(content)
    with pytest.raises(FileError, match=rf"{name}.*dvc repro") as caught:
        collect(PARAMS, workspace)
    assert len(str(caught.value)) < 2000


def test_a_trial_that_did_not_fail_lacks_no_measurement_and_a_long_response_is_cut(workspace):
    response = b"\xff" + "é".encode() * 1_000_000
    (workspace / "data/raw/large/builders/I/builders_I_1.txt").write_bytes(response)
    builders, *_ = collect(PARAMS, workspace).teams
    assert [trial.reply for trial in builders.trials if len(trial.reply) > 1000] == [f"\ufffd{'é' * 1999}…"]
    path = workspace / "data/similarity/large/builders/I.json"
    write_json(path, read_json(path) | {"trials": read_json(path)["trials"][:-1]})
    with pytest.raises(FileError, match="letter I, trial 2 did not fail"):
        collect(PARAMS, workspace)


def test_a_ranking_of_other_params_is_refused(evaluated):
    for change in ({"teams": {"zero-shot": Team(), "builders": Team()}}, {"models": {"large": PARAMS.models["large"]}}):
        with pytest.raises(FileError, match=r"ranking\.json: has other teams, models, letters or trials"):
            collect(PARAMS.model_copy(update=change), evaluated)


@given(st.floats(0, 1000, exclude_min=True), st.integers(1, 6))
def test_only_zero_looks_like_zero(value, digits):
    shown = figure(value, digits)
    assert shown.startswith("<") or float(shown) > 0
    assert abs(float(shown.lstrip("<")) - value) <= 10.0**-digits
    assert figure(0, digits) == "0"
