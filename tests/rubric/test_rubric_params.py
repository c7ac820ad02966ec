"""The section `rubric` of params.yaml."""

import pytest

from pcgeval.cli.settings import default_params
from pcgeval.core.params import ParamsError, parse_params

MODEL = {"backend": "ollama", "name": "m:1"}


def parsed(rubric, **more):
    values = default_params().model_dump(mode="json", exclude_unset=True)
    return parse_params({**values, "teams": ["one"], "rubric": rubric, **more}, "params.yaml").rubric


def test_the_usual_judge_needs_nothing_and_a_model_judge_has_its_settings():
    assert (parsed({}).judge, parsed({}).model, parsed({}).votes) == ("checks", None, 1)
    rubric = parsed({"judge": "simple", "model": MODEL, "votes": 3, "context": 4096, "deadline": 60})
    assert (rubric.model.name, rubric.votes, rubric.context, rubric.deadline) == ("m:1", 3, 4096, 60)


@pytest.mark.parametrize(
    ("rubric", "expected"),
    [
        ({"judge": "simpel"}, r"rubric\.judge: .*'simple'"),
        ({"judge": "simple"}, "the judge simple needs a model"),
        ({"judge": "simple", "model": {**MODEL, "option": {}}}, r"'rubric\.model\.option'\. Did you mean 'options'\?"),
        ({"context": 2048, "model": {**MODEL, "options": {"num_ctx": 4096}}}, "context is 2048, but .*num_ctx is 4096"),
        ({"model": {**MODEL, "options": {"num_predict": "many"}}}, "num_predict is 'many'; give a number of tokens"),
        ({"model": {**MODEL, "profile": {"contexts": 1}}}, r"rubric\.model\.profile\.contexts.*'context'"),
        ({"judge": "simple", "model": {**MODEL, "host": "http://me:secret@x"}}, "password"),
        ({"deadline": 0}, r"rubric\.deadline"),
        ({"vote": 1}, r"Did you mean 'votes'\?"),
    ],
)
def test_faults_are_named(rubric, expected):
    with pytest.raises(ParamsError, match=expected):
        parsed(rubric)


def test_a_model_cannot_be_named_like_the_folder_of_the_judges_recordings():
    with pytest.raises(ParamsError, match="reserved for the judge's recordings"):
        parsed({}, models={"Judge": {"backend": "recorded", "name": "m"}})
