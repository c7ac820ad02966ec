"""The official tools' own answers, byte for byte."""

import gzip
import json
from pathlib import Path

from pcgeval.levels.extraction import extract_code
from pcgeval.levels.xml import LevelError, level_blocks, level_xml

GOLDEN = Path(__file__).parents[1] / "golden/levels"


def cases(name):
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8", newline="\n") as file:  # raw U+2028 occurs in texts
        return [json.loads(line) for line in file]


def convert(code):
    try:
        return level_xml(code), None
    except LevelError as error:
        return None, str(error)


def test_extraction_is_the_official_one():
    wrong = [case["id"] for case in cases("levels.jsonl.gz") if extract_code(case["response"]) != case["extracted"]]
    assert wrong == []


def test_conversion_of_extracted_code_is_the_official_one():
    extracted = [case for case in cases("levels.jsonl.gz") if case["extracted"] is not None]
    assert len(extracted) > 1000
    wrong = [case["id"] for case in extracted if convert(case["extracted"]) != (case["xml"], case["error"])]
    assert wrong == []


def test_conversion_of_any_text_is_the_official_one():
    wrong = [
        case["id"] for case in cases("converter.jsonl.gz") if convert(case["text"]) != (case["xml"], case["error"])
    ]
    assert wrong == []


def test_every_official_level_can_be_read_back():
    for case in cases("levels.jsonl.gz"):
        if case["xml"] is not None:
            assert len(level_blocks(case["xml"].encode("utf-8"))) == case["extracted"].count("\n")
