"""params.yaml: what is refused, and whether the message helps."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from params_for_tests import SECTIONS, small_values

from pcgeval.formats.params import Model, ParamsError, load_params, parse_params

REPOSITORY = Path(__file__).parents[2]
SMALLEST = small_values("CAB", teams=["alpha"], models={"small": {"backend": "recorded", "name": "small:1b"}})
COMPETITION = SMALLEST["competition"]
AS_TEXT = yaml.safe_dump(SMALLEST, sort_keys=False)


def test_the_published_competition_has_the_published_rules():
    params = load_params(REPOSITORY / "data" / "competitions" / "llms4pcg-2025.yaml")
    assert (params.competition.trials, len(params.competition.characters), params.competition.seed) == (10, 26, 6280)
    assert (params.limits.tokens, params.limits.seconds, params.limits.prompt_words) == (25_000, 500, 900)
    assert (params.physics.engine, params.physics.iterations) == ("box2d", 100)
    assert parse_params(SMALLEST, "params.yaml").competition.characters == "ABC"  # sorted
    assert Model(backend="ollama", name="x", keep_alive="1h30m").keep_alive == "1h30m"


def of_models(**models: dict[str, Any]) -> dict[str, Any]:
    return {"models": {name: {"backend": "ollama", "name": "x", **values} for name, values in models.items()}}


ENDPOINT = {"backend": "openai", "base_url": "http://here/v1"}
JUDGE = {"backend": "ollama", "name": "x"}


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        *(({section: ...}, [f"'{section}' is missing"]) for section in (*SECTIONS, "competition", "models", "limits")),
        ({"physics": {"tirals": 2}}, ["'physics.tirals'", "Did you mean 'trials'?"]),
        ({"competition": {**COMPETITION, "characters": "ABA"}}, ["competition.characters", "each once"]),
        ({"competition": {**COMPETITION, "trials": "x"}}, ["competition.trials: must be a valid integer"]),
        (
            {"limits": {"tokens": 1, "seconds": 1e10, "prompt_words": 1}},
            ["limits.seconds: must be less", "1000000"],
        ),
        ({"teams": ["alpha"]}, ["teams", "is a list", "pcgeval init . --upgrade"]),
        ({"teams": {"alpha": {"rol": "baseline"}}}, ["'teams.alpha.rol'", "Did you mean 'role'?"]),
        ({"teams": {"alpha": {"role": "judge"}}}, ["teams.alpha.role: must be 'participant' or 'baseline'"]),
        ({"teams": {"alpha": {}, "ALPHA": None}}, ["upper and lower case"]),
        ({"scoring": {"baseline": "nobody"}}, ["scoring.baseline", "'nobody'", "alpha"]),
        (of_models(judge={}), ["'judge'", "reserved"]),
        (of_models(m={"backend": "chatgpt"}), ["models.m.backend: must be 'recorded', 'ollama'", "'chatgpt'"]),
        (of_models(one=ENDPOINT, two={**ENDPOINT, "base_url": "http://2"}), ["'two'", "'x'", "base_url"]),
        *((of_models(m={"keep_alive": value}), ["keep_alive: must be a dur"]) for value in ("5", "٣m", True)),
        (of_models(m={"host": "http://user:secret@here:1"}), ["models.m", "password"]),
        (of_models(m={"base_url": "http://here/v1"}), ["the backend ollama takes no base_url"]),
        (of_models(m={"backend": "llamacpp", "concurrency": 2}), ["one call at a time"]),
        (of_models(m={**ENDPOINT, "base_url": "http://here/v1?key=secret"}), ["without a key or password"]),
        (of_models(m={**ENDPOINT, "digest": "ab" * 32}), ["none can be pinned"]),
        ({"rubric": {"judge": "simple"}}, ["needs a model"]),
        ({"rubric": {"model": {**JUDGE, "options": {"num_predict": 0}}}}, ["num_predict is 0"]),
        ({"rubric": {"context": 5000, "model": {**JUDGE, "options": {"num_ctx": 4096}}}}, ["num_ctx is 4096"]),
        (of_models(m={"options": {"seed": 2.5}}), ["options: seed must be a whole"]),
        (of_models(m={"options": {"seed": 2}}), ["'m'", "options.seed would be ignored", "competition.seed"]),
        ({"rubric": {"evidence": True, "prompts": "paperbench"}}, ["evidence"]),
        ({"competition": {**COMPETITION, "trials": 0}}, ["competition.trials: must be greater than or equal to 1"]),
        *(
            ({"similarity": {"model": model, "revision": revision}}, [model, "data/classifier", "revision"])
            for model, revision in (
                ("data/vit", None),
                ("/vit", "a" * 40),
                ("owner/name", None),
                ("owner/name", "main"),
            )
        ),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], fragments: list[str]):
    values = {name: value for name, value in {**SMALLEST, **changes}.items() if value is not ...}
    with pytest.raises(ParamsError) as fault:
        parse_params(values, "params.yaml")
    message = str(fault.value)
    assert [fragment for fragment in ["params.yaml: ", *fragments] if fragment not in message] == [], message


@pytest.mark.parametrize(
    ("before", "after", "fragments"),
    [
        ("teams:\n  alpha: {}\n", "teams: {alpha: }\nteams: {beta: }\n", ["line 8", "'teams'", "line 7"]),
        ("physics: {}\n", f"physics: {{seed: {'9' * 200}}}\n", ["line 17", "digits"]),
        ("name: test\n", "name: [test\n", ["not valid YAML", "line"]),
        *((AS_TEXT, text, []) for text in ("", "\x00", "teams: 2024-13-40", "teams: !!bool x", "[" * 5000)),
    ],
)
def test_a_fault_of_the_text_is_named_with_its_line(tmp_path: Path, before: str, after: str, fragments: list[str]):
    path = tmp_path / "params.yaml"
    assert before in AS_TEXT
    path.write_text(AS_TEXT.replace(before, after))
    with pytest.raises(ParamsError) as fault:
        load_params(path)
    assert all(fragment in str(fault.value) for fragment in [f"{path}: ", *fragments])


def test_own_params_may_have_aliases_and_a_stranger_s_may_not(tmp_path: Path):
    path = tmp_path / "params.yaml"
    path.write_text(AS_TEXT.replace("small:\n", "small: &small\n").replace("limits:", "  large: *small\nlimits:"))
    assert {model.name for model in load_params(path).models.values()} == {"small:1b"}
    with pytest.raises(ParamsError, match="alias"):
        load_params(path, allow_aliases=False)
