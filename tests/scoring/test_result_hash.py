"""The result hash: another one for each change of what decides a ranking, the same one after any other change."""

import os
import time
from pathlib import Path

import pytest
import yaml
from evaluated_round import PARAMS

from pcgeval.core.files import DVC_IGNORED, write_json, write_text
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import RANKING_JSON, STATE
from pcgeval.formats.params import parse_params
from pcgeval.formats.results import DECIDING_PACKAGES, DECIDING_STAGES, RankingFile, result_doubts, result_hash

ROOT = Path(__file__).parents[2]
PART_OF = {
    "data/submissions/builders/prompt.txt": "submissions",
    "data/recordings/small/builders/calls.jsonl": "recordings",
    "data/raw/small/builders/I/builders_I_1.txt": "trials",
    "data/stability/small/builders/simulations.json": "measurements",
    "data/similarity/large/zero-shot/T.json": "measurements",
    "data/diversity/small/cheats/I.json": "measurements",
    "data/classifier/model.safetensors": "classifier",
    "pcgeval.json": "source",
    "src/pcgeval/generation/guest/b.py": "source",
    "stages/rank.py": "source",
}


def hash_of(root, params=PARAMS):
    return result_hash(params, RankingFile.read(root / RANKING_JSON), root)


def changed_parts(root, before, params=PARAMS):
    now = hash_of(root, params)
    assert (now.sha256 != before.sha256) == (now.parts != before.parts)
    return [part for part in now.parts if now.parts[part] != before.parts[part]]


def doubts_of(root):
    return result_doubts(PARAMS, RankingFile.read(root / RANKING_JSON), root)


def test_a_change_of_a_file_changes_its_part_alone(root):
    before = hash_of(root)
    assert read_json(root / RANKING_JSON)["result"] == before.model_dump()
    for name, part in PART_OF.items():
        content = (root / name).read_bytes()
        (root / name).write_bytes(content + b" ")
        assert changed_parts(root, before) == [part]
        assert doubts_of(root) == [f"it comes from other {part}"]
        (root / name).write_bytes(content)
    ignored = ("src/pcgeval/core/__pycache__/a.pyc", "data/raw/small/builders/.x.part", "data/stability/.gitignore")
    not_recorded = ("data/recordings/large/builders/calls.jsonl", "data/recordings/judge/calls.jsonl")
    for name in (*ignored, *not_recorded, "src/pcgeval/report/c.py"):
        write_text(root / name, "x")
    os.mkfifo(root / "data/submissions/builders/pipe")
    (root / "data/submissions/builders/lost").symlink_to("nowhere")
    assert (changed_parts(root, before), doubts_of(root)) == ([], [])


def test_doubts_read_a_file_again_whose_size_and_time_are_as_before_but_not_its_content(root, monkeypatch):
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 60)  # so that no change is recent
    assert doubts_of(root) == []
    assert list((root / STATE / "hashes").iterdir())
    place = root / "data/stability/small/builders/simulations.json"
    before, content = place.stat(), place.read_bytes()
    place.write_bytes(content.replace(b"0", b"1"))
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert doubts_of(root) == ["it comes from other measurements"]
    place.write_bytes(content)
    assert doubts_of(root) == []
    (root / STATE / "hashes" / "measurements").write_bytes(b"torn")
    assert doubts_of(root) == []


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"competition": {"seed": 2}}, ["params"]),
        ({"similarity": {"revision": "f" * 40}}, ["params"]),
        ({"similarity": {"batch": 1, "device": "cuda"}, "execution": {"scheduler": "tcp://10.0.0.1:8786"}}, []),
        ({"rubric": {"seed": 7}}, []),
    ],
)
def test_a_param_that_decides_changes_it_and_neither_servers_nor_speed_nor_the_rubric(evaluated, change, parts):
    values = PARAMS.model_dump(mode="json")
    values["models"]["large"] |= {"host": "gpu1:11434", "concurrency": 8, "keep_alive": "5m"}
    for section, settings in change.items():
        values[section] |= settings
    assert changed_parts(evaluated, hash_of(evaluated), parse_params(values, "")) == parts


def test_a_ranking_with_a_hash_that_is_not_its_own_raises_doubts(root):
    value = read_json(root / RANKING_JSON)
    for change, doubt in (
        ({"result": None}, "it has no result hash: the stage rank did not write it"),
        ({"winners": ["cheats"]}, "it was altered after the stage rank wrote it"),
    ):
        write_json(root / RANKING_JSON, value | change)
        assert doubts_of(root) == [doubt]


def test_it_covers_the_stages_and_packages_of_the_pipeline_and_what_dvc_does_not_ignore():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    deps = {dep for stage in DECIDING_STAGES for dep in stages[stage]["deps"] if not dep.startswith("data/")}
    modules = {f"src/pcgeval/{name}" for name in ("__init__.py", "pipeline.py", *DECIDING_PACKAGES)}
    assert deps == {*modules, "stages", *(f"stages/{stage}.py" for stage in DECIDING_STAGES if stage != "rank")}
    assert {*modules, "stages"} <= set(stages["rank"]["deps"])
    rules = (ROOT / ".dvcignore").read_text().splitlines()
    assert sorted(DVC_IGNORED) == sorted(rule for rule in rules if not rule.startswith(("#", "!")))
