import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from lxml import etree
from PIL import Image

from pcgeval import score_level
from pcgeval.cli.main import main

ROOT = Path(__file__).parents[2]
CLASSIFIER = ["--set", f"similarity.model={ROOT / 'data/classifier'}"]
CALLS = "drop_block('b31', 5)\ndrop_block('b13', 5)\ndrop_block('b31', 6)\ndrop_block('b31', 7)\n"

pytestmark = pytest.mark.slow  # torch is loaded


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The same level as calls, as a response and in XML."""
    monkeypatch.chdir(tmp_path)
    Path("calls.txt").write_text(CALLS)
    Path("response.txt").write_text(f"Here it is.\n```\n{CALLS}```\n")
    Path("level.xml").write_text(score_level(CALLS, "T").xml)
    return ["calls.txt", "response.txt", "level.xml"]


def test_the_three_kinds_of_files_give_the_same_figures(files, capsys):
    shown = []
    for name in files:
        assert main(["level", name, "--letter", "T", *CLASSIFIER]) == 0
        text = capsys.readouterr().out
        assert "read as" in text.splitlines()[0]
        shown.append(text.splitlines()[-2:])
    assert shown[0] == shown[1] == shown[2]


def test_what_fell_is_named_by_its_call(files, capsys):
    assert main(["level", files[0], "--letter", "T", *CLASSIFIER]) == 0
    text = capsys.readouterr().out
    found = score_level(CALLS, "T")
    for block in found.blocks:
        assert (f"{block.number:2} {block.call}" in text) == (block.fate != "stayed")
    assert any(block.fate != "stayed" for block in found.blocks)


def test_json_and_pictures(files, capsys):
    options = ["--png", "a.png", "--svg", "b.svg", "--replay", "c.svg", "--json"]
    assert main(["level", files[0], "--letter", "T", *CLASSIFIER, *options]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["score"] == values["stability"] * values["similarity"]
    assert values["code"].splitlines() == CALLS.splitlines()
    assert values["xml"] == score_level(CALLS, "T").xml
    assert len(values["blocks"]) == len(values["after"]) == 4
    assert len(values["probabilities"]) == 26
    with Image.open("a.png") as picture:
        assert picture.size == (1024, 1024)
    assert all(etree.fromstring(Path(name).read_bytes()).tag.endswith("svg") for name in ("b.svg", "c.svg"))


def test_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CALLS.encode())))
    assert main(["level", "-", "--letter", "T", *CLASSIFIER]) == 0
    assert "stdin: read as calls" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\x00")))
    assert main(["level", "-", "--letter", "T", *CLASSIFIER]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_elsewhere_the_packages_own_classifier_is_loaded(files, capsys):
    assert main(["level", files[0], "--letter", "T"]) == 0
    own = capsys.readouterr()
    assert own.err == ""
    assert main(["level", files[0], "--letter", "T", *CLASSIFIER]) == 0
    assert capsys.readouterr().out == own.out


def test_where_the_classifier_needs_an_extra_that_is_missing_the_level_is_simulated(files, capsys, monkeypatch):
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["similarity"] = {"model": "somebody/some-classifier", "revision": "0" * 40}
    Path("params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["level", files[0], "--letter", "T"]) == 0
    said = capsys.readouterr()
    assert "pip install 'pcgeval[classifier]'" in said.err
    assert "similarity is not known" in said.out
    assert f"stability {score_level(CALLS, 'T').stability:.3f}" in said.out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the response is empty"),
        ("drop_block('b99', 3)", "holds no drop_block call"),
        ("```\ndrop_block('b31', 0)\n```", "Width boundary"),
        ("<Level><GameObjects><Pig/></GameObjects></Level>", "Pig"),
        ("<!DOCTYPE a><Level/>", "document type"),
    ],
)
def test_a_level_that_fails_has_a_reason(tmp_path, capsys, text, reason):
    path = tmp_path / "a.txt"
    path.write_text(text)
    assert main(["level", str(path), "--letter", "A", *CLASSIFIER, "--png", str(tmp_path / "a.png")]) == 1
    assert reason in capsys.readouterr().out
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    "words", [["--letter", "AB"], [], ["--letter", "A", "--watch"], ["--letter", "A", "--set", "physics.starts"]]
)
def test_wrong_usage(words, capsys):
    assert main(["level", "-", *words]) == 2
    assert "Usage" in capsys.readouterr().err


def test_a_file_is_scored_again_when_it_changes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(CALLS)
    words = [sys.executable, "-m", "pcgeval", "level", str(path), "--letter", "T", *CLASSIFIER, "--watch", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=tmp_path, text=True, env=dict(os.environ), **pipes) as process:
        first = json.loads(process.stdout.readline())
        path.unlink()
        path.write_text("drop_block('b13', 3)\n")
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read().endswith("ended\n")
    assert (len(first["blocks"]), len(second["blocks"])) == (4, 1)


@pytest.mark.usefixtures("files")
def test_engines_and_jittered_starts(capsys):
    pytest.importorskip("Box2D")
    tower = "drop_block('b31', 5)\n" * 16  # stands in pymunk, sways in Box2D
    Path("tower.txt").write_text(tower)
    assert main(["level", "tower.txt", "--letter", "I", "--engines", "--starts", "3", *CLASSIFIER]) == 0
    text = capsys.readouterr().out
    assert "3 starts" in text
    assert {line.split()[0] for line in text.splitlines() if " stability " in line} >= {"pymunk", "box2d"}
    assert any("with box2d only" in line for line in text.splitlines())
    assert main(["level", "tower.txt", "--letter", "I", "--engines", "--starts", "3", "--json", *CLASSIFIER]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["engines"]["pymunk"]["stability"] == found["stability"] == 1 > found["engines"]["box2d"]["stability"]
    assert len(found["starts"]) == 3


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("option", ["--png", "--svg", "--replay"])
def test_a_picture_makes_no_folder(option, tmp_path, capsys):
    Path("tower.txt").write_text(CALLS)
    assert main(["level", "tower.txt", "--letter", "T", *CLASSIFIER, option, str(tmp_path / "nowhere" / "x")]) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("physics.start=3", "Did you mean 'starts'"),
        ("physics.engine=unity", "physics.engine"),
        ("=3", "give KEY=VALUE"),
    ],
)
def test_a_setting_is_checked_like_params(assignment, words, capsys):
    Path("tower.txt").write_text(CALLS)
    assert main(["level", "tower.txt", "--letter", "T", "--set", assignment]) == 2
    assert words in capsys.readouterr().err
