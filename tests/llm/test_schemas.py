import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.llm.protocol import CallError, ChatRequest, Message
from pcgeval.llm.schemas import SchemaError, checked_schema

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "$ref"]), inner, max_size=2),
    max_leaves=6,
)
KEYWORDS = st.sampled_from(["$ref", "type", "items", "$defs", "pattern", "maxLength", "enum"])


def deep(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def doubled(levels):
    """References that double at each level: a few lines of schema that unfold to 2^levels."""
    definitions = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": {"type": "object"}}}


HOSTILE = {
    "itself": ({"$ref": "#"}, "refers to itself"),
    "a circle": ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}, "refers to itself"),
    "two in a circle": ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
    "elsewhere": ({"$ref": "http://127.0.0.1/schema"}, "refers to no schema within it"),
    "nowhere": ({"$ref": "#/$defs/none"}, "refers to no schema within it"),
    "deep": (deep(50), "deeper than 32"),
    "very deep": (deep(100_000), "deeper than 32"),
    "doubled": (doubled(9), "more than 500 values"),
    "many values": ({"enum": list(range(600))}, "more than 500 values"),
    "long": ({"const": "x" * 30_000}, "20000 characters"),
    "a long name": ({"properties": {"x" * 30_000: {}}}, "20000 characters"),
    "a huge count": ({"type": "string", "maxLength": 10**12}, "#/maxLength: 1000000000000"),
    "a negative count": ({"properties": {"a": {"minItems": -1}}}, "#/properties/a/minItems: -1"),
    "a broken count": ({"minItems": 1.5}, "1.5"),
    "a bound without an integer": ({"type": "integer", "minimum": 1e300}, "beyond 2"),
    "no number": ({"const": float("nan")}, "no number of JSON"),
    "infinite": ({"minimum": float("inf")}, "beyond 2"),
    "no JSON": ({"const": {1, 2}}, "a set is no value of JSON"),
    "a key that is no text": ({"properties": {7: {}}}, "the key 7"),
    "a pattern for a part": ({"pattern": "a"}, "would not be obeyed"),
    "a pattern that blows up": ({"pattern": "^" + "(a|b)*" * 80 + "$"}, "would not be obeyed"),
    "repetitions within repetitions": ({"pattern": "^((a?){10}){10}$"}, "would not be obeyed"),
    "a class that llama.cpp does not know": ({"pattern": r"^\d+$"}, "would not be obeyed"),
}


@pytest.mark.parametrize(("schema", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_schemas_are_refused(schema, words):
    with pytest.raises(SchemaError, match=words):
        checked_schema(schema)


@given(st.dictionaries(KEYWORDS, JSON, max_size=3))
def test_any_value_is_taken_or_refused(schema):
    with contextlib.suppress(SchemaError):
        assert checked_schema(schema) is not schema


def test_references_are_replaced_by_what_they_refer_to():
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    schema = {
        "$defs": {"a/b": point, "~": {"$ref": "#/$defs/a~1b"}},
        "anyOf": [{"$ref": "#/$defs/a~1b", "title": "P"}, {"$ref": "#/$defs/~0"}],
    }
    assert checked_schema(schema) == {"anyOf": [{**point, "title": "P"}, point]}


def test_a_property_may_have_the_name_of_a_keyword():
    names = ("pattern", "maxLength", "minimum", "$ref", "items")
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    assert checked_schema(schema) == schema


ODD = [
    {"type": "nonsense"},
    {"type": 7},
    {"type": ["string", 7]},
    {"enum": []},
    {"anyOf": []},
    {"anyOf": "x"},
    {"properties": []},
    {"items": "x"},
    {"required": "a", "properties": {"a": {}}},
    {"type": "string", "format": 7},
    {"type": "integer", "minimum": "x"},
    {"type": "string", "pattern": "^[$"},
    {"type": "string", "pattern": "^(((($"},
    {"type": "array", "maxItems": 2000, "items": {"type": "string", "maxLength": 2000}},
    {"type": "object", "properties": {'a"b\n\\]\0\ud800': {"type": "string"}}, "required": ['a"b\n\\]\0\ud800']},
    {"type": "object", "properties": {f"p{number}": {} for number in range(200)}},
    {"type": "array", "items": {"anyOf": [{"type": "string", "pattern": "^(a*)*(a|b)*(b*)*$"}] * 80}},
    {"allOf": [{"not": {"type": "string"}}]},
    {},
]


@pytest.mark.llm
def test_odd_schemas_are_answered_or_a_failed_call_and_the_model_lives_on(smollm):
    def ask(schema):
        options = {"temperature": 1, "num_predict": 1, "seed": 1}
        return smollm.chat(ChatRequest("m", "d", (Message("user", "Give JSON."),), options, schema), 60)

    refused = 0
    for schema in ODD:
        try:
            ask(schema)
        except CallError:
            refused += 1
    assert 8 <= refused < len(ODD)
    assert ask({"enum": ["yes"]}).output_tokens == 1
