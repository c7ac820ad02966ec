"""`pcgeval init`: what it writes, what it refuses, and what an upgrade leaves as it is."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from handed_in_for_tests import write_folder
from params_for_tests import contents

from pcgeval.cli.check import prepare_round
from pcgeval.cli.main import main
from pcgeval.formats.params import load_params
from pcgeval.proof.commitment import read_commitment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    assert main(["init", str(tmp_path / "mine")]) == 0
    return tmp_path / "mine"


def test_a_new_competition_is_the_demo_with_live_models_and_the_installed_pcgeval(folder):
    params, demo = load_params(folder / "params.yaml"), load_params(ROOT / "params.yaml")
    assert params.models == {
        name: model.model_copy(update={"backend": "llamacpp"}) for name, model in demo.models.items()
    }
    assert params.teams == {"zero-shot": demo.teams["zero-shot"]}
    for section in ("limits", "physics", "similarity", "diversity"):
        assert getattr(params, section) == getattr(demo, section)
    stages, with_source = (yaml.safe_load((place / "dvc.yaml").read_text())["stages"] for place in (folder, ROOT))
    for name, stage in with_source.items():
        deps = [dep for dep in stage["deps"] if not dep.startswith(("src/", "data/examples/"))]
        assert stages[name] == {**stage, "deps": [*deps, "pcgeval.json"]}
    assert all((folder / dep).exists() for dep in stages["generate"]["deps"])
    workspace = prepare_round("midterm", folder)
    assert (workspace / "pcgeval.json").read_bytes() == (folder / "pcgeval.json").read_bytes()


@pytest.fixture
def known(monkeypatch, tmp_path):
    """Tell git a name and an address, or none of both."""
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))

    def tell(text):
        (tmp_path / "gitconfig").write_text(text)

    tell("[user]\n name = a\n email = a@b\n")
    return tell


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.usefixtures("known")
def test_a_repository_with_a_commit_is_made_only_where_there_is_none(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "mine"
    assert main(["init", str(folder)]) == 0
    assert len(git(folder, "log", "--oneline").splitlines()) == 1
    assert not git(folder, "status", "--porcelain")
    assert read_commitment(folder) == (git(folder, "rev-parse", "HEAD").strip(), [])
    capsys.readouterr()
    assert main(["init", str(folder / "next")]) == 0
    assert "git commit" in capsys.readouterr().err
    assert not (folder / "next/.git").exists()
    assert len(git(folder, "log", "--oneline").splitlines()) == 1
    monkeypatch.setenv("PATH", str(tmp_path))  # without git, DVC needs none
    assert main(["init", str(tmp_path / "other")]) == 0
    assert "no_scm = true" in (tmp_path / "other/.dvc/config.local").read_text()


def test_without_a_name_for_git_the_command_of_the_first_commit_is_printed(known, tmp_path, capsys):
    known("[user]\n name = a\n")
    assert main(["init", str(tmp_path / "mine")]) == 0
    command = capsys.readouterr().err.partition("then: ")[2].splitlines()[0]
    assert read_commitment(tmp_path / "mine").commit is None
    known("[user]\n name = a\n email = a@b\n")
    subprocess.run(command, shell=True, cwd="/", check=True, capture_output=True)  # noqa: S602 - the printed command
    assert read_commitment(tmp_path / "mine").uncommitted == []


def test_an_edition_is_the_published_final_and_names_what_is_not_shipped(tmp_path, capsys):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert main(["init", str(tmp_path), "--edition", "2025"]) == 0, "an empty repository is an empty folder"
    published = ROOT / "data/competitions/llms4pcg-2025.yaml"
    assert (tmp_path / "params.yaml").read_bytes() == published.read_bytes()
    said = capsys.readouterr().err
    for missing in ("llms4pcg-pe-examples", "vit-base-uppercase-english-characters", "digests"):
        assert missing in said
        assert missing in published.read_text()


def test_a_folder_of_others_is_refused_and_an_upgrade_writes_the_pipeline_alone(folder, tmp_path):
    for words in ([], ["--edition", "2025", "--upgrade"], ["--upgrade"]):
        assert main(["init", str(tmp_path), *words]) == main(["init", str(tmp_path / "no/where"), *words]) == 2
    assert list(tmp_path.iterdir()) == [folder]
    before = contents(folder)
    for name in ("pcgeval.json", "dvc.yaml", ".dvcignore", "stages/rank.py", "stages/gone.py"):
        (folder / name).write_text("{}")
    (folder / "Makefile").write_text("all:\n")
    assert main(["init", str(folder), "--upgrade"]) == 0
    assert contents(folder) == before | {"Makefile": b"all:\n"}


@pytest.mark.parametrize(
    ("listed", "converted"),
    [
        ("teams: [one, 'two',\n  three]  # c\n", "teams: {one: %s, 'two': %s, three: %s} # c\n"),
        (
            "teams:   # a\n- one\n-   'two'  # b\n# c\n- three\n",
            "teams:   # a\n  one: %s\n  'two': %s # b\n# c\n  three: %s\n",
        ),
        ("teams:\n  - one\n  - 'two'\n  - three\n", "teams:\n  one: %s\n  'two': %s\n  three: %s\n"),
    ],
)
@pytest.mark.parametrize("is_checkout", [False, True])
def test_an_older_competition_is_converted_once(folder, listed, converted, is_checkout):
    written = (folder / "params.yaml").read_bytes().decode().replace("baseline: zero-shot", "baseline: one")
    start, end = written.index("teams:"), written.index("models:")
    (folder / "params.yaml").write_bytes(f"{written[:start]}{listed}\n{written[end:]}".encode())
    shutil.rmtree(folder / "data/locks")
    submissions, lock = (
        folder / "data/submissions",
        f"# {'a' * 64}, Python 3, m\nx==1 \\\n    --hash=sha256:{'b' * 64}\n",
    )
    one = {"submission.yaml": "title: 'É: #1 {x}'\nrole: baseline\n", "requirements-lock.txt": lock}
    two = {"submission.yaml": "disqualified: |\n  it cheated\n  twice\n", "requirements-lock.txt": "numpy==1\n"}
    for team, files in {"one": one, "two": two, "three": {"submission.yaml": "name: of the team\n"}}.items():
        write_folder(submissions / team, {**files, "README.md": team, "prompt.txt": "<OBJECT>"})
    if is_checkout:
        (folder / "pcgeval.json").unlink()
        (folder / "dvc.yaml").write_text("stages: {}\n")
    assert main(["init", str(folder), "--upgrade"]) == 0
    text = (folder / "params.yaml").read_bytes().decode()
    values = ('{title: "É: #1 {x}", role: baseline}', '{disqualified: "it cheated\\ntwice\\n"}', "{}")
    assert text == f"{written[:start]}{converted % values}\n{written[end:]}"
    assert load_params(folder / "params.yaml").teams["two"].disqualified == "it cheated\ntwice\n"
    assert (folder / "data/locks/one.txt").read_text() == lock
    assert sorted(path.name for path in (folder / "data/locks").iterdir()) == ["README.md", "one.txt"]
    left = {name for name in contents(submissions) if not name.endswith(("README.md", "prompt.txt", ".yaml"))}
    assert left == {"two/requirements-lock.txt"}
    assert [path.parent.name for path in submissions.glob("[!z]*/submission.yaml")] == ["three"]
    assert (folder / "pcgeval.json").exists() is not is_checkout
    # a file of this name that comes later is the team's
    write_folder(submissions / "one", one)
    before = contents(folder)
    assert main(["init", str(folder), "--upgrade"]) == 0
    assert contents(folder) == before
