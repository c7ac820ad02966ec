"""The result hash: another one for each change of what decides a ranking, the same one wherever the files lie."""

import os
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
import yaml
from evaluated_round import PARAMS, tree, write_round

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_json, write_json, write_text
from pcgeval.core.layout import DVC_IGNORED, RANKING_JSON
from pcgeval.core.params import parse_params
from pcgeval.core.stage_files import RankingFile
from pcgeval.scoring.result_hash import PACKAGES, STAGES, deciding_files, result_doubts, result_hash
from pcgeval.scoring.stages import rank_stage

ROOT = Path(__file__).parents[2]
RECORDING = Path("data/recordings/small/builders/calls.jsonl")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    root = tmp_path_factory.mktemp("round")
    write_text(root / RECORDING, "{}\n")
    for name in ("pipeline.py", "core/a.py", "generation/guest/b.py", "report/c.py"):
        write_text(root / "src/pcgeval" / name, "")
    write_text(root / "stages/rank.py", "")
    write_round(root)
    return root


@pytest.fixture
def root(evaluated, tmp_path):
    return Path(shutil.copytree(evaluated, tmp_path / "round"))


def hash_of(root, params=PARAMS):
    ranking = read_json(root / RANKING_JSON)
    return result_hash(params, ranking, deciding_files(params, root))


def changed_parts(root, before, params=PARAMS):
    now = hash_of(root, params)
    assert (now.sha256 != before.sha256) == (now.parts != before.parts)
    return [part for part in now.parts if now.parts[part] != before.parts[part]]


def test_the_ranking_names_it(root):
    value = read_json(root / RANKING_JSON)
    assert value["result"] == hash_of(root).model_dump()
    assert value["packages"]["torch"]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("data/submissions/builders/prompt.txt", "submissions"),
        ("data/submissions/cheats/submission.yaml", "submissions"),
        (RECORDING, "recordings"),
        ("data/raw/small/builders/I/builders_I_1.txt", "trials"),
        ("data/raw/large/builders/I/builders_I_1.json", "trials"),
        ("data/stability/small/builders/I.json", "measurements"),
        ("data/stability/small/builders/simulations.json", "measurements"),
        ("data/similarity/large/zero-shot/T.json", "measurements"),
        ("data/stability/small/builders/trials.json", "measurements"),
        ("data/diversity/small/cheats/I.json", "measurements"),
        ("data/classifier/config.json", "classifier"),
        ("data/classifier/model.safetensors", "classifier"),
        ("src/pcgeval/pipeline.py", "source"),
        ("src/pcgeval/core/a.py", "source"),
        ("src/pcgeval/generation/guest/b.py", "source"),
        ("stages/rank.py", "source"),
    ],
)
def test_a_change_of_a_file_changes_its_part_alone(root, name, part):
    before = hash_of(root)
    content = (root / name).read_bytes()
    (root / name).write_bytes(content + b" ")
    assert changed_parts(root, before) == [part]
    (root / name).unlink()
    assert changed_parts(root, before) == [part]
    (root / f"{name}.moved").write_bytes(content)
    assert changed_parts(root, before) == [part]


@pytest.mark.parametrize("change", [{"winners": ["cheats"]}, {"classifier": "other sha256:ab"}, {"engine": "box2d"}])
def test_a_change_of_the_ranking_changes_its_part(root, change):
    before = hash_of(root)
    write_json(root / RANKING_JSON, read_json(root / RANKING_JSON) | change)
    assert changed_parts(root, before) == ["ranking"]


def doubts_of(root, params=PARAMS):
    return result_doubts(params, RankingFile.read(root / RANKING_JSON), root)


def test_a_ranking_of_what_is_there_raises_no_doubt(root):
    assert doubts_of(root) == []


def test_the_parts_that_changed_since_the_ranking_are_named(root):
    write_text(root / "data/submissions/builders/prompt.txt", "Another <OBJECT>, please.")
    write_text(root / "data/raw/small/builders/I/builders_I_1.txt", "Another reply.")
    assert doubts_of(root) == ["it was made from other submissions, trials"]
    other = PARAMS.model_copy(update={"teams": ("zero-shot", "builders")})
    assert doubts_of(root, other) == ["it was made from other measurements, params, submissions, trials"]


def test_a_ranking_with_a_hash_that_is_not_its_own_raises_doubts(root):
    value = read_json(root / RANKING_JSON)
    write_json(root / RANKING_JSON, {**value, "result": None})
    assert doubts_of(root) == ["it has no result hash: the stage rank did not write it"]
    write_json(root / RANKING_JSON, {**value, "result": {**value["result"], "sha256": "0" * 64}})
    assert doubts_of(root) == ["its result hash is not that of its parts"]
    write_json(root / RANKING_JSON, {**value, "reason": "The cheats won."})
    assert doubts_of(root) == ["it was altered after the stage rank wrote it"]
    parts = {name: sha256 for name, sha256 in value["result"]["parts"].items() if name != "source"}
    write_json(root / RANKING_JSON, {**value, "result": {**value["result"], "parts": parts}})
    assert doubts_of(root) == ["it was made from other source"]


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("competition", "seed", 2),
        ("limits", "seconds", 400),
        ("physics", "jitter", 0.001),
        ("similarity", "revision", "f" * 40),
        ("diversity", "vectors", "cls"),
    ],
)
def test_a_param_that_decides_changes_it(root, section, key, value):
    values = PARAMS.model_dump(mode="json")
    values[section][key] = value
    assert changed_parts(root, hash_of(root), parse_params(values, "")) == ["params"]


def test_neither_servers_nor_speed_nor_the_rubric_change_it(root):
    values = PARAMS.model_dump(mode="json")
    values["models"]["large"] |= {"host": "gpu1:11434", "concurrency": 8, "keep_alive": "5m"}
    values["similarity"] |= {"batch": 1, "device": "cuda"}
    values["execution"] = {"scheduler": "tcp://10.0.0.1:8786"}
    values["rubric"]["seed"] = 7
    assert changed_parts(root, hash_of(root), parse_params(values, "")) == []


def test_a_recording_that_is_not_replayed_is_no_part(root):
    before = hash_of(root)
    write_text(root / "data/recordings/large/builders/calls.jsonl", "{}\n")
    write_text(root / "data/recordings/judge/builders/calls.jsonl", "{}\n")
    assert changed_parts(root, before) == []


def test_it_is_the_same_wherever_the_files_lie(root, tmp_path):
    """Links to a cache, other times, another order on the disk and what DVC ignores make no difference."""
    before = hash_of(root)
    moved = tmp_path / "elsewhere" / "é"
    for path in sorted(tree(root), reverse=True):
        (moved / path).parent.mkdir(parents=True, exist_ok=True)
        if path.parts[1:2] in {("raw",), ("stability",)}:
            (moved / path).symlink_to(root / path)
        else:
            shutil.copyfile(root / path, moved / path)
        os.utime(moved / path, (1, 1))
    for name in ("src/pcgeval/core/__pycache__/a.pyc", "data/raw/small/builders/.x.part", "data/stability/.gitignore"):
        write_text(moved / name, "x")
    with chdir(moved):
        assert hash_of(Path()) == before
        rank_stage(PARAMS)
        assert read_json(RANKING_JSON)["result"] == before.model_dump()


def test_what_cannot_be_read_is_an_error_and_a_pipe_is_no_file(root):
    before = hash_of(root)
    os.mkfifo(root / "data/submissions/builders/pipe")
    (root / "data/submissions/builders/lost").symlink_to("nowhere")
    assert changed_parts(root, before) == []
    if os.geteuid():
        (root / "data/submissions/builders/prompt.txt").chmod(0)
        with pytest.raises(FileError, match=r"prompt\.txt: cannot be read"):
            hash_of(root)


def test_it_covers_the_stages_and_packages_of_the_pipeline_and_rank_depends_on_them():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    deps = {dep for stage in STAGES for dep in stages[stage]["deps"] if not dep.startswith("data/")}
    modules = {"src/pcgeval/__init__.py", "src/pcgeval/pipeline.py", *(f"src/pcgeval/{each}" for each in PACKAGES)}
    assert deps == {*modules, "stages", *(f"stages/{each}.py" for each in STAGES if each != "rank")}
    assert {*modules, "stages"} <= set(stages["rank"]["deps"])
    assert "results/ranking.json" in [next(iter(each)) for each in stages["rank"]["outs"]]


def test_what_dvc_ignores_is_no_part():
    rules = (ROOT / ".dvcignore").read_text().splitlines()
    assert sorted(DVC_IGNORED) == sorted(rule for rule in rules if not rule.startswith("#"))
