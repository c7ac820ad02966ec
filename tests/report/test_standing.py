"""Why teams stand where they stand: on an evaluated round, and for intervals that a test gives."""

import pytest
from evaluated_round import PARAMS
from lxml import html
from page_for_tests import read_report, team_page

from pcgeval.report.collect import collect
from pcgeval.report.render import write_report
from pcgeval.report.standing import standings


@pytest.fixture(scope="module")
def evaluation(evaluated):
    return collect(PARAMS, evaluated)


@pytest.fixture(scope="module")
def pages(evaluated, tmp_path_factory):
    return read_report(write_report(PARAMS, evaluated, tmp_path_factory.mktemp("out")))


def test_a_team_is_compared_with_the_median_and_the_best_other(evaluation):
    found = standings(evaluation)
    assert set(found) == {"builders", "zero-shot"}  # not the disqualified
    assert found["builders"].other.name == "zero-shot"
    assert found["zero-shot"].other.name == "builders"
    for comparison, mirrored in zip(found["builders"].comparisons, found["zero-shot"].comparisons, strict=True):
        assert (comparison.own, comparison.other) == (mirrored.other, mirrored.own)
        assert comparison.median == mirrored.median == pytest.approx((comparison.own + comparison.other) / 2)
    assert found["builders"].comparisons[-1].own == 3 / 8  # of its trials failed


def test_letters_points_are_the_parts_of_the_normalised_total(evaluation):
    """With two letters and two models, the five letters that brought most are all of them."""
    builders = standings(evaluation)["builders"]
    total = float(next(team for team in evaluation.teams if team.name == "builders").row.normalised)
    assert sum(each.points for each in builders.best) == pytest.approx(total)
    gaps = [each.other_points - each.points for each in builders.lost]
    assert gaps == sorted(gaps, reverse=True)
    assert all(gap > 0 for gap in gaps)


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
