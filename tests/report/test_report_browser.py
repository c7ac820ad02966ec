"""The script of a team's page in a real browser, where there is one."""

import re
import shutil
import subprocess

import pytest
from evaluated_round import PARAMS

from pcgeval.report.render import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")]


@pytest.fixture(scope="module")
def report(evaluated, tmp_path_factory):
    return write_report(PARAMS, evaluated, tmp_path_factory.mktemp("out")).parent


def opened(report, place, page="teams/builders.html"):
    """Return a page as it is after a link to a place on it was followed."""
    address = f"{(report / page).as_uri()}#{place}"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    return subprocess.run([CHROMIUM, *options, address], capture_output=True, text=True, check=True, timeout=120).stdout


def test_a_link_to_a_trial_opens_its_letter_with_a_picture_of_each_level(report):
    markup = opened(report, "m-large.I.2")
    assert re.search(r'<details id="m-large"[^>]* open=""', markup)
    letter = markup[markup.index('<details class="letter" id="m-large.I"') : markup.index('id="m-large.T"')]
    assert re.match(r"[^>]* open=", letter)
    gallery = re.search(r'<div class="gallery">(.*?)</div>', letter)[1]
    drawn = re.findall(r'<path class="(stayed|moved)" d="([^"]+)"', gallery)
    assert drawn == re.findall(r' data-(stayed|moved)="([^"]+)"', letter)
    assert len(drawn) >= 2


def test_trials_can_be_found_and_tables_sorted(report):
    assert re.search(r'<div class="find" role="search"><label>.*<option>large</option>', opened(report, "levels"))
    index = opened(report, "ranking", "index.html")
    assert re.search(r'<table class="ranking sortable"><thead><tr><th scope="col"><button type="button">Rank', index)


def test_what_is_not_opened_is_not_drawn(report):
    assert not re.search(r'<path class="(stayed|moved)"', opened(report, "submission"))
