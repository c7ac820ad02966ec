"""params.yaml: what is refused, and whether the message helps."""

from pathlib import Path
from typing import Any

import pytest

from pcgeval.core.params import ParamsError, load_params, load_untrusted_params, parse_params

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

AS_TEXT = """\
teams: [alpha]
competition:
  name: test
  edition: "1"
  characters: ABC
  trials: 10
  seed: 1
limits: {tokens: 25000, seconds: 500, prompt_words: 900}
physics: {}
similarity: {}
diversity: {}
scoring: {}
rubric: {}
models:
  small: &small
    backend: recorded
    name: "small:1b"
    options: {}
"""


def parse(**changes: Any):
    return parse_params({**SMALLEST, **changes}, "params.yaml")


def test_the_published_competition_has_the_published_rules():
    params = load_params(Path(__file__).parents[2] / "data" / "competitions" / "llms4pcg-2025.yaml")
    assert (params.competition.trials, len(params.competition.characters), params.competition.seed) == (10, 26, 6280)
    assert (params.limits.tokens, params.limits.seconds, params.limits.prompt_words) == (25_000, 500, 900)
    assert (params.physics.engine, params.physics.iterations) == ("box2d", 100)
    assert {model.backend for model in params.models.values()} == {"ollama"}
    load_params(Path(__file__).parents[2] / "params.yaml")


def refused(values: Any, words: list[str]) -> None:
    with pytest.raises(ParamsError) as fault:
        parse_params(values, "params.yaml")
    assert all(word in str(fault.value) for word in ["params.yaml: ", *words])


@pytest.mark.parametrize("section", ["competition", "teams", "models", "limits", "physics", "scoring", "rubric"])
def test_every_section_is_required(section: str):
    refused({name: value for name, value in SMALLEST.items() if name != section}, [f"'{section}' is missing"])


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
        ({"competition": {**COMPETITION, "characters": "ABA"}}, ["competition.characters", "each once"]),
        ({"competition": {**COMPETITION, "trials": 1}}, ["competition.trials", "found 1"]),
        ({"physics": {"step": float("nan")}}, ["physics.step"]),
        ({"scoring": {"baseline": "nobody"}}, ["scoring.baseline", "'nobody'", "alpha"]),
        ({"models": {"m": {"backend": "chatgpt", "name": "x"}}}, ["models.m.backend", "'chatgpt'"]),
        (
            {"models": {k: {"backend": "openai", "name": "x", "base_url": f"http://{k}/v1"} for k in ("one", "two")}},
            ["models 'one' and 'two'", "'x'", "base_url"],
        ),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], words: list[str]):
    refused({**SMALLEST, **changes}, words)


def model(**changes: Any):
    return parse(models={"m": {"backend": "ollama", "name": "x", **changes}}).models["m"]


@pytest.mark.parametrize("value", ["5m", "1h30m", "1.5s", "-1m", "0", "250ms", 0, 3600, -1])
def test_keep_alive_has_ollama_s_format(value: int | str):
    assert model(keep_alive=value).keep_alive == value


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(({"keep_alive": value}, ["keep_alive"]) for value in ("5", "-1", "soon", "", "5 m", "٣m", True, 1.5)),
        *(({"concurrency": value}, ["concurrency"]) for value in (0, -1, 1.5, 1000, "many")),
        ({"host": "http://user:secret@here:1"}, ["password"]),
        ({"base_url": "http://here/v1"}, ["the backend ollama takes no base_url"]),
        ({"backend": "llamacpp", "host": "here"}, ["the backend llamacpp takes no host"]),
        ({"backend": "llamacpp", "concurrency": 2}, ["one call at a time"]),
        ({"backend": "openai"}, ["base_url such as http"]),
        ({"backend": "openai", "base_url": "here/v1"}, ["base_url such as http"]),
        ({"backend": "openai", "base_url": "http://u:secret@here/v1"}, ["without a key or password"]),
        ({"backend": "openai", "base_url": "http://here/v1?key=secret"}, ["without a key or password"]),
        ({"backend": "openai", "base_url": "http://here/v1", "keep_alive": "5m"}, ["takes no keep_alive"]),
        ({"backend": "openai", "base_url": "http://here/v1", "digest": "ab" * 32}, ["none can be pinned"]),
        ({"digest": "ab"}, ["digest"]),
        ({"api_key": "secret"}, ["unknown key 'models.m.api_key'"]),
    ],
)
def test_a_model_that_cannot_be_meant_is_refused(changes: dict[str, Any], words: list[str]):
    models = {"m": {"backend": "ollama", "name": "x", **changes}}
    refused({**SMALLEST, "models": models}, ["models.m", *words])


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("teams: [alpha]\n", "teams: [alpha]\nteams: [beta]\n", ["line 2", "'teams'", "line 1"]),
        ("  seed: 1\n", "  seed: 1\n  seed: 1\n", ["line 8", "'seed'", "line 7"]),
        ("physics: {}\n", 'physics: {seed: 0, "seed": 1}\n', ["line 9", "'seed'"]),
        ("physics: {}\n", f"physics: {{seed: {'9' * 200}}}\n", ["line 9", "digits"]),
        ("physics: {}\n", f"physics: {{step: 0x{'f' * 5000}}}\n", ["line 9", "digits"]),
        ("name: test\n", "name: [test\n", ["not valid YAML", "line"]),
    ],
)
def test_a_fault_of_the_text_is_named_with_its_line(tmp_path: Path, before: str, after: str, words: list[str]):
    path = tmp_path / "params.yaml"
    assert before in AS_TEXT
    path.write_text(AS_TEXT)
    load_params(path)
    path.write_text(AS_TEXT.replace(before, after))
    with pytest.raises(ParamsError) as fault:
        load_params(path)
    assert all(word in str(fault.value) for word in [str(path), *words])


def test_own_params_may_have_aliases_and_a_stranger_s_may_not(tmp_path: Path):
    path = tmp_path / "params.yaml"
    path.write_text(AS_TEXT.replace("&small", ""))
    assert load_untrusted_params(path) == load_params(path)
    path.write_text(f"{AS_TEXT}  large: {{<<: *small, name: 'large:1b'}}\n")
    params = load_params(path)
    assert {model.name: model.options for model in params.models.values()} == {"small:1b": {}, "large:1b": {}}
    with pytest.raises(ParamsError, match="alias"):
        load_untrusted_params(path)


@pytest.mark.parametrize(
    "text",
    ["", "- 1", "teams: [", "\x00", "teams: 2024-13-40", "teams: !!bool x", "teams: !!int ''", "[" * 5000],
)
def test_other_texts_are_refused_with_the_name_of_the_file(tmp_path: Path, text: str):
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ParamsError, match=r"params\.yaml: "):
        load_params(tmp_path / "params.yaml")


def test_letters_are_sorted():
    assert parse(competition={**COMPETITION, "characters": "TA"}).competition.characters == "AT"
