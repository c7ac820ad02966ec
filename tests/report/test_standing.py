"""Why teams stand where they stand: on an evaluated round, and for intervals that a test gives."""

import re
from dataclasses import replace

import pytest
from evaluated_round import PARAMS
from lxml import html
from page_for_tests import part, read_report, team_page

from pcgeval.core.stage_files import RankedTeam, ScoreInterval
from pcgeval.report.collect import collect
from pcgeval.report.render import render_pages, write_report
from pcgeval.report.standing import alternatives_of, firmness, overlapping, standings


@pytest.fixture(scope="module")
def evaluation(evaluated):
    return collect(PARAMS, evaluated)


@pytest.fixture(scope="module")
def pages(evaluated, tmp_path_factory):
    return read_report(write_report(PARAMS, evaluated, tmp_path_factory.mktemp("out")))


def test_the_round_scored_again_gives_the_ranking(evaluation):
    held = alternatives_of(evaluation).held
    assert held == pytest.approx({team.name: float(team.row.normalised) for team in evaluation.scored_teams})


def test_a_team_is_compared_with_the_median_and_the_best_other(evaluation):
    found = standings(evaluation, alternatives_of(evaluation))
    assert set(found) == {"builders", "zero-shot"}  # not the disqualified
    assert found["builders"].other.name == "zero-shot"
    assert found["zero-shot"].other.name == "builders"
    for each, mirrored in zip(found["builders"].comparisons, found["zero-shot"].comparisons, strict=True):
        assert (each.own, each.other) == (mirrored.other, mirrored.own)
        assert each.median == mirrored.median == pytest.approx((each.own + each.other) / 2)
    assert found["builders"].comparisons[-1].own == 3 / 8  # of its trials failed


def test_letters_points_are_the_parts_of_the_normalised_total(evaluation):
    """With two letters and two models, the five letters that brought most are all of them."""
    builders = standings(evaluation, alternatives_of(evaluation))["builders"]
    total = float(next(team for team in evaluation.teams if team.name == "builders").row.normalised)
    assert sum(each.points for each in builders.best) == pytest.approx(total)
    gaps = [each.other_points - each.points for each in builders.lost]
    assert gaps == sorted(gaps, reverse=True)
    assert all(gap > 0 for gap in gaps)


def test_the_page_shows_what_a_gain_is_worth(evaluation, pages):
    worth = standings(evaluation, alternatives_of(evaluation))["builders"].gains
    rows = [row.text_content() for row in html.fromstring(part(team_page(pages, "builders"), "standing")).iter("tr")]
    for each in worth:
        words = "no failed trials" if each.gain == "failures" else f"0.01 more {each.gain}"
        (row,) = [row for row in rows if row.startswith(words)]
        assert f"{each.normalised:.2f}" in row
    assert 'id="standing"' not in team_page(pages, "cheats")


def row(team, low, high):
    return RankedTeam.model_construct(team=team, interval=ScoreInterval(low, high))


def test_teams_that_cannot_be_told_apart_share_a_group():
    rows = [row("a", 8, 12), row("b", 6, 9), row("c", 4, 7), row("d", 1, 2)]
    assert overlapping(rows) == [{"a", "b"}, {"b", "c"}]
    assert overlapping([row("a", 1, 9), row("b", 2, 8), row("c", 3, 7)]) == [{"a", "b", "c"}]
    assert overlapping([row("a", 5, 6), row("b", 1, 2)]) == []


def test_the_index_shows_how_firm_the_order_is(evaluation):
    """The round has one ranked team; let its baseline and a copy of it take part."""
    ranked = [
        replace(team, row=team.row.model_copy(update={"rank": rank, "status": "ranked"}))
        for rank, team in enumerate(evaluation.scored_teams, start=1)
    ]
    changed = replace(evaluation, teams=(*ranked, *(team for team in evaluation.teams if team.disqualified)))
    found = firmness(changed, alternatives_of(changed))
    assert [each.team.name for each in found] == [team.name for team in ranked]
    assert [set(each.without_model) for each in found] == [{"small", "large"}] * 2
    assert sorted(each.unweighted for each in found) == [1, 2]
    table = re.search(r'<table class="firmness sortable">.*?</table>', dict(render_pages(changed))["index.html"])[0]
    rows = html.fromstring(table).xpath("//tbody/tr")
    for each, line in zip(found, rows, strict=True):
        cells = [cell.text_content() for cell in line]
        assert cells == [
            str(each.team.row.rank),
            each.team.title,
            each.groups or "–",
            str(each.unweighted),
            *map(str, each.without_model.values()),
        ]


def test_a_letter_s_page_shows_it_by_all_teams_the_best_first(evaluation, pages):
    page = html.fromstring(pages["letters/I.html"])
    for place, model in enumerate(PARAMS.models):
        blocks = page.get_element_by_id(f"m-{model}").find_class("letter")
        assert {block.get("id") for block in blocks} == {f"t-{team}.{model}" for team in PARAMS.teams}
        scores = {team.name: team.models[place].letters[0].scores for team in evaluation.teams}
        found = [scores[block.get("id").removeprefix("t-").removesuffix(f".{model}")] for block in blocks]
        assert found[-1] is None  # the disqualified team
        assert [each.score for each in found[:-1]] == sorted((each.score for each in found[:-1]), reverse=True)
    row, beside = (
        html.fromstring(markup).get_element_by_id(place)
        for markup, place in (
            (pages["letters/I.html"], "t-builders.large.1"),
            (team_page(pages, "builders"), "m-large.I.1"),
        )
    )
    assert dict(row.attrib) | {"id": ""} == dict(beside.attrib) | {"id": ""}
    assert row.text_content() == beside.text_content()
