"""params.yaml: what is refused, and whether the message helps."""

from pathlib import Path
from typing import Any

import pytest

from pcgeval.competition.params import ParamsError, load_params, parse_params

COMPETITION = {"name": "test", "edition": "1", "characters": "ABC", "trials": 10, "seed": 1}
SMALLEST: dict[str, Any] = {
    "competition": COMPETITION,
    "teams": ["alpha"],
    "models": {"small": {"backend": "recorded", "name": "small:1b"}},
    "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 900},
    "physics": {},
    "similarity": {},
    "diversity": {},
    "scoring": {},
    "rubric": {},
}


def parse(**changes: Any):
    return parse_params({**SMALLEST, **changes}, "params.yaml")


def test_the_published_competition_has_the_published_rules():
    params = load_params(Path(__file__).parents[2] / "data" / "competitions" / "llms4pcg-2025.yaml")
    assert (params.competition.trials, len(params.competition.characters), params.competition.seed) == (10, 26, 6280)
    assert (params.limits.tokens, params.limits.seconds, params.limits.prompt_words) == (25_000, 500, 900)


@pytest.mark.parametrize("section", ["competition", "teams", "models", "limits", "physics", "scoring", "rubric"])
def test_every_section_must_be_there(section: str):
    values = {name: value for name, value in SMALLEST.items() if name != section}
    with pytest.raises(ParamsError, match=f"'{section}' is missing"):
        parse_params(values, "params.yaml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"physcs": {}}, ["'physcs'", "Did you mean 'physics'?"]),
        ({"physics": {"tirals": 2}}, ["'physics.tirals'", "Did you mean 'trials'?"]),
        ({"models": {"name": {"backend": "ollama", "name": "x", "digst": "0"}}}, ["'models.name.digst'", "'digest'"]),
        ({"rounds": {"midterm": {"characters": "A", "trails": 2}}}, ["'rounds.midterm.trails'", "'trials'"]),
        ({"models": {"a.b": {"backend": "ollama", "name": "x"}}}, ["model 'a.b'"]),
        ({"teams": []}, ["teams"]),
        ({"teams": ["result"]}, ["'result'", "reserved"]),
        ({"teams": ["../x"]}, ["'../x'"]),
        ({"teams": ["Same", "same"]}, ["twice"]),
        (
            {
                "teams": ["a", "a-b"],
                "models": {name: {"backend": "recorded", "name": name} for name in ("b-c", "c")},
            },
            ["'a'", "'a-b'", "a-b-c"],
        ),
        ({"competition": {**COMPETITION, "characters": "ABA"}}, ["competition.characters", "each once"]),
        ({"competition": {**COMPETITION, "trials": 1}}, ["competition.trials", "found 1"]),
        ({"physics": {"step": float("nan")}}, ["physics.step"]),
        ({"scoring": {"baseline": "nobody"}}, ["scoring.baseline", "'nobody'", "alpha"]),
        ({"models": {"m": {"backend": "openai", "name": "x"}}}, ["models.m.backend", "'openai'"]),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], words: list[str]):
    with pytest.raises(ParamsError) as fault:
        parse(**changes)
    assert all(word in str(fault.value) for word in ["params.yaml: ", *words])


def test_all_faults_are_told_at_once():
    with pytest.raises(ParamsError) as fault:
        parse(physcs={}, teams=[])
    assert len(str(fault.value).splitlines()) == 2


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\x00", b"- 1", b""])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    with pytest.raises(ParamsError, match=r"params\.yaml"):
        load_params(path)


def test_letters_are_sorted():
    assert parse(competition={**COMPETITION, "characters": "TA"}).competition.characters == "AT"


def test_the_params_of_this_repository_are_valid():
    root = Path(__file__).parents[2]
    files = [root / "params.yaml", *sorted((root / "data" / "competitions").glob("*.yaml"))]
    assert len(files) >= 2
    for path in files:
        load_params(path)
