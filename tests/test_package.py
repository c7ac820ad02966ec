"""The package outside of a checkout: what the wheel holds, a competition made from it, and what needs no extra."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from model_servers import SlowJudgeServer
from packaging.requirements import Requirement
from workspace import with_this_python

from pcgeval.core.packages import EXTRAS, install_command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DATA = (
    *("data/classifier", "data/papers/block-letters", "data/rubrics/competition"),
    *("data/competitions", "data/locks", "data/submissions/zero-shot"),
)
PIPELINE = ("stages", "dvc.yaml", ".gitignore", ".gitattributes", ".dvcignore", ".dvc/.gitignore", ".dvc/config")
MODEL = "qwen-coder-1b5"
BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
"""


def run(words: list[str], folder: Path, package: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder with a package that is not the checkout's."""
    environment = {"PATH": with_this_python(), "PYTHONPATH": str(package), "HOME": str(folder), "PYTHONUTF8": "1"}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def pcgeval(folder: Path, package: Path, *words: str, code: int = 0) -> str:
    """Run a command in a folder with a package; return what it printed."""
    done = run(["-m", "pcgeval", *words], folder, package)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def blocked(names: Iterable[str], code: str) -> list[str]:
    """Return the arguments of a Python that cannot import some packages."""
    return ["-c", BLOCK.format(blocked=set(names)) + code]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip installs the wheel of a source distribution; the packages that it requires are this environment's."""
    folder, target = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src", *PIPELINE, *DATA):
        leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
        source, copy = ROOT / name, folder / "checkout" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, copy, ignore=leave_out) if source.is_dir() else shutil.copy(source, copy)
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder], cwd=folder / "checkout", check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--no-compile", "--quiet")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *offline, "--target", target, sdist]
    subprocess.run(pip, check=True, capture_output=True)
    return target


def test_the_wheel_holds_every_file_and_the_data_of_the_checkout(installed):
    places = {"src": installed, **dict.fromkeys(DATA, installed / "pcgeval")}
    places |= dict.fromkeys(PIPELINE, installed / "pcgeval/data/pipeline")
    for name, place in places.items():
        root = ROOT / "src" if name == "src" else ROOT
        for path in [ROOT / name, *(ROOT / name).rglob("*")]:
            if path.is_file() and not {"__pycache__", "pcgeval.egg-info"} & {*path.parts}:
                assert (place / path.relative_to(root)).read_bytes() == path.read_bytes()


@pytest.fixture(scope="module")
def competition(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A competition that the installed package made, with two teams and replies of the demo, evaluated."""
    folder = tmp_path_factory.mktemp("place") / "mine"
    pcgeval(folder.parent, installed, "init", "mine")
    pcgeval(folder, installed, "submit", str(ROOT / "data/submissions/one-example"))
    params = yaml.safe_load((folder / "params.yaml").read_text("utf-8"))
    assert [*params["teams"]] == ["zero-shot", "one-example"]
    params["competition"] |= {"characters": "IL", "trials": 2}
    params["rounds"] = {"midterm": {"characters": "I", "trials": 2, "seed": params["competition"]["seed"]}}
    params["models"] = {MODEL: {**params["models"][MODEL], "backend": "recorded"}}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    recordings = Path("data/recordings", MODEL)
    shutil.copytree(ROOT / recordings, folder / recordings, dirs_exist_ok=True)
    done = run(["-m", "dvc", "repro"], folder, installed)
    assert done.returncode == 0, done.stderr
    author = ("-c", "user.name=organiser", "-c", "user.email=organiser@example.org")
    for words in (("add", "."), (*author, "commit", "--quiet", "--message", "The final")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def test_a_competition_made_from_the_wheel_is_evaluated_and_proved_without_the_source(competition, installed, tmp_path):
    shown = pcgeval(competition, installed, "run")
    assert "one-example" in shown
    assert "Running stage" not in shown
    before = (competition / "results/ranking.json").read_bytes()
    pcgeval(competition, installed, "run", "--round", "midterm")
    midterm = json.loads((competition / "rounds/midterm/results/ranking.json").read_text())
    assert (midterm["rules"]["letters"], midterm["rules"]["trials"]) == ("I", 2)
    assert (competition / "results/ranking.json").read_bytes() == before
    assert pcgeval(competition, installed, "audit", "--strict").startswith("PASSED")
    # the example paper of the package
    assert "block-letters/model/" in pcgeval(tmp_path, installed, "rubric", "leaves", "block-letters")
    pcgeval(competition, installed, "bundle", "--out", str(tmp_path / "b.zip"))
    assert pcgeval(tmp_path, installed, "verify", "b.zip").startswith("PASSED")
    copy = shutil.copytree(competition, tmp_path / "copy")
    (copy / "stages/sitecustomize.py").write_text("")
    assert "installed release: stages/sitecustomize.py" in pcgeval(copy, installed, "audit", code=1)


def test_another_pcgeval_than_that_of_the_competition_is_refused_until_it_is_upgraded(competition, installed, tmp_path):
    copy = shutil.copytree(competition, tmp_path / "copy")
    other = shutil.copytree(installed, tmp_path / "other")
    with (other / "pcgeval/judge/prompts/pcgeval.md").open("a") as prompt:
        prompt.write("Be kind.\n")
    for words in (["stages/rank.py"], ["-m", "pcgeval", "run"]):
        done = run(words, copy, other)
        assert (done.returncode, "pcgeval init . --upgrade" in done.stderr) == (2, True)
    assert "installed release: pcgeval.json" in pcgeval(copy, other, "audit", code=1)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    pcgeval(copy, other, "init", ".", "--upgrade")
    changed = [path for path in copy.rglob("*") if path.is_file() and path.read_bytes() != before.get(path)]
    assert changed == [copy / "pcgeval.json"]
    assert run(["stages/rank.py"], copy, other).returncode == 0


def test_the_evaluator_needs_the_extra_levels_alone(tmp_path):
    code = """
import pcgeval
from pcgeval import diversity, extract_code, level_xml, render, score_level, simulate
response = "```\\ndrop_block('b31', 7)\\n```"
assert render(simulate(level_xml(extract_code(response)))).size == (1024, 1024)
level = score_level(response, "I")
assert level.stability == 1 and level.svg() and level.image() and level.to_dict()
assert level.score == level.similarity == score_level(response, "I", pcgeval.Classifier.load()).similarity > 0
assert abs(diversity([[1.0, 0.0], [0.0, 1.0]], 2) - 1) < 1e-9
for name in dir(pcgeval):
    getattr(pcgeval, name)
try:
    pcgeval.Classifier.load(device="cuda")
except pcgeval.PcgevalError as error:
    print(error)
"""
    done = run(blocked(EXTRAS.keys() - {"pymunk"}, code), tmp_path, ROOT / "src")
    assert done.returncode == 0, done.stderr
    needed = "this classifier needs the package torch, which is not installed. Run `pip install "
    assert done.stdout.startswith(needed)
    assert done.stdout.endswith("[classifier]'`.\n")


def test_the_judge_the_checks_and_the_tree_need_neither_torch_nor_dvc_nor_pymunk(tmp_path):
    shutil.copytree(ROOT / "data/papers/block-letters/submissions/half", tmp_path / "attempt")
    code = """
import asyncio, importlib, pkgutil
import pcgeval.checks, pcgeval.judge, pcgeval.rubric
from pcgeval import extract_leaf_grades, get_grade_summary, run_judge
for package in (pcgeval.checks, pcgeval.judge, pcgeval.rubric):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
config = {"backend": "ollama", "name": "m:1", "host": sys.argv[1]}
for judge, model in (("simple", config), ("checks", None), ("dummy", None)):
    output = asyncio.run(run_judge("attempt", "block-letters", judge_type=judge, completer_config=model))
    assert len(extract_leaf_grades(output.graded_task_tree)) == output.num_leaf_nodes
    assert get_grade_summary(output.graded_task_tree)
    print(output.judge_type, output.num_leaf_nodes - output.num_invalid_leaf_nodes)
"""
    with SlowJudgeServer(0) as server:
        done = run([*blocked(EXTRAS, code), server.address], tmp_path, ROOT / "src")
        assert server.asked
    assert done.returncode == 0, done.stderr
    graded = {judge: int(leaves) for judge, leaves in map(str.split, done.stdout.splitlines())}
    assert graded["dummy"] > graded["simple"] > graded["checks"] == 0  # no check decides without a run of reproduce.sh


COMMAND = "from pcgeval.cli.main import main\nsys.exit(main(sys.argv[1:]))"
OTHER_CLASSIFIER = ("--set", "similarity.model=x/y", "--set", f"similarity.revision={40 * 'a'}")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("levels", ["level", "level.txt", "--letter", "I"]),
        ("classifier", ["level", "level.txt", "--letter", "I", *OTHER_CLASSIFIER]),
        ("parquet", ["evaluate", "responses.jsonl", "--out", "scores"]),
        ("pipeline", ["run"]),
    ],
)
def test_a_command_names_the_extra_that_it_needs(extra, words, tmp_path):
    (tmp_path / "level.txt").write_text("drop_block('b31', 7)\n")
    (tmp_path / "responses.jsonl").write_text("")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    packages = [package for package, brought_by in EXTRAS.items() if brought_by == extra]
    done = run([*blocked(packages, COMMAND), *words], tmp_path, ROOT / "src")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: pcgeval {words[0]} needs the package ")
    assert re.search(rf"Run `pip install .*\[{extra}\]'`\.$", line)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'pcgeval[levels]'"),
        ({"url": "https://example.org/p.whl", "archive_info": {}}, "pip install 'pcgeval[levels]'"),
        ({"url": "file:///else%20where", "dir_info": {}}, "pip install '/else where[levels]'"),
        ({"url": "file://{here}", "dir_info": {}}, "pip install '.[levels]'"),
        ({"url": "file://{here}", "dir_info": {"editable": True}}, "pip install -e '.[levels]'"),
    ],
)
def test_a_remedy_installs_from_where_pcgeval_came(origin, command, tmp_path, monkeypatch):
    about = tmp_path / "pcgeval-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pcgeval\nVersion: 1.0\n")
    if origin:
        (about / "direct_url.json").write_text(json.dumps(origin).replace("{here}", str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert install_command("levels") == command


def test_the_help_of_every_command_needs_no_extra(tmp_path):
    code = """
from pcgeval.cli.main import SECTIONS, main
for commands in SECTIONS.values():
    for name in commands:
        assert main([name, "--help"]) == 0, name
"""
    done = run(blocked(EXTRAS, code), tmp_path, ROOT / "src")
    assert done.returncode == 0, done.stderr


def test_every_package_of_an_extra_is_known():
    extras = {name: [*map(Requirement, texts)] for name, texts in PROJECT["optional-dependencies"].items()}
    others = {"pcgeval", "uv"}  # uv is a program
    brought_by = {package.name.partition(".")[0]: extra for extra, packages in extras.items() for package in packages}
    assert {item for item in brought_by.items() if item[0] not in others} <= EXTRAS.items()
    (everything,), (judge,) = extras["all"], extras["judge"]
    assert judge.extras == {"openai"}
    assert not {Requirement(text).name for text in PROJECT["dependencies"]} & EXTRAS.keys()
    assert everything.extras == extras.keys() - {"all", "inspect", "verifiers"}, (
        "the extra all lacks one, or has one too many"
    )
