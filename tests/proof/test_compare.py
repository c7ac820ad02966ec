"""Two states of a competition side by side, each a revision, a folder or a bundle: what changed in them is shown."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from bundles import contents, packed
from workspace import DIGESTS, OTHER_DIGEST, OTHER_PROMPT, commit_all, evaluate, git

from pcgeval.cli.main import main
from pcgeval.formats.results import LetterRow, read_csv
from pcgeval.proof.bundle import make_bundle

RANKING = Path("results/ranking.json")
KEPT_IN_GIT = ("params.yaml", "results", "data/submissions")


@pytest.fixture(scope="module")
def changed(competition: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small competition, evaluated after beta changed its prompt."""
    folder = Path(shutil.copytree(competition, tmp_path_factory.mktemp("changed") / "competition"))
    (folder / "data/submissions/beta/prompt.txt").write_text(OTHER_PROMPT)
    evaluate(folder, until="rank")
    return folder


@pytest.fixture
def root(competition, tmp_path, monkeypatch):
    """A copy of the small competition, committed, which is also the working folder."""
    folder = Path(shutil.copytree(competition, tmp_path / "competition"))
    monkeypatch.chdir(folder)
    commit_all(folder, *KEPT_IN_GIT)
    return folder


@pytest.fixture
def repository(root, changed):
    """The small competition in the first commit and beta's other prompt in the second and in the folder."""
    for name in ("results", "data/submissions"):
        shutil.rmtree(root / name)
        shutil.copytree(changed / name, root / name)
    commit_all(root, *KEPT_IN_GIT)
    return root


@pytest.fixture
def different(capsys):
    """Return a function for what `pcgeval compare` says is different, by kind, name, team and model."""

    def run(*states):
        assert main(["compare", *states, "--json"]) == 0
        values = json.loads(capsys.readouterr().out)
        changed = [value for value in values if value["before"] != value["after"] and value["kind"] != "state"]
        labels = [[value[part] for part in ("kind", "name", "team", "model") if value[part]] for value in changed]
        return {tuple(label): (value["before"], value["after"]) for label, value in zip(labels, changed, strict=True)}

    return run


def test_a_state_is_the_same_as_itself_wherever_it_is_read_from(root, bundle, tmp_path, monkeypatch, different, capsys):
    (tmp_path / "before.zip").write_bytes(bundle)
    for places in (["HEAD"], ["../before.zip"], [str(root)], []):
        assert different("HEAD", *places) == {}
    assert main(["compare", "HEAD", "--json"]) == 0
    kinds = {value["kind"] for value in json.loads(capsys.readouterr().out)}
    assert kinds == {"state", "result hash", "winners", "rank", "status", "normalised", "recognised", "score"}
    folder = tmp_path / "repository" / "final"  # also in a folder of a repository
    folder.parent.mkdir()
    shutil.move(root, folder)
    shutil.move(folder / ".git", folder.parent / ".git")
    git(folder.parent, "add", "--all")
    git(folder.parent, "commit", "--quiet", "-m", "moved")
    monkeypatch.chdir(folder)
    assert different("HEAD") == {}


def test_another_prompt_changes_its_team_s_scores(repository, competition, changed, tmp_path, different):
    (tmp_path / "after.zip").write_bytes(make_bundle(changed))

    def files():
        kept_hashes = Path(".pcgeval")
        names = (path for path in Path().rglob("*") if not path.is_relative_to(kept_hashes))
        return git(repository, "status", "--porcelain", "--", ":!.pcgeval"), sorted(names)

    before = files()
    changes = different("HEAD~1", "HEAD")
    assert changes == different(str(competition)) == different("HEAD~1") == different("HEAD~1", "../after.zip")
    assert files() == before
    assert {key[1:] for key in changes if key[0] == "submission"} == {("beta",)}
    assert ("trials",) in changes
    assert not {"params", "model", "classifier", "code"} & {key[0] for key in changes}
    teams = [json.loads((folder / RANKING).read_text())["teams"] for folder in (competition, repository)]
    totals = [{line["team"]: line["normalised"] for line in lines} for lines in teams]
    for team in ("alpha", "beta"):
        assert changes[("normalised", team)] == tuple(by_team[team] for by_team in totals)
    for model in ("small", "large"):
        paths = [folder / f"results/official/{model}/character_scores.csv" for folder in (competition, repository)]
        for before, after in zip(*(read_csv(LetterRow, path) for path in paths), strict=True):
            assert (("letter", before.letter, before.team, model) in changes) == (before.score != after.score)


def test_params_and_settings_of_models_are_named_with_both_values(root, different):
    values = yaml.safe_load((root / "params.yaml").read_text())
    values["models"]["small"]["digest"] = OTHER_DIGEST
    values["models"]["large"]["options"] = {"temperature": 0.5}
    values["scoring"]["baseline"] = None
    (root / "params.yaml").write_text(yaml.safe_dump(values))
    changes = {
        ("model", "small.digest"): (DIGESTS["small"], OTHER_DIGEST),
        ("model", "large.options.temperature"): (None, 0.5),
        ("params", "scoring.baseline"): ("alpha", None),
    }
    assert different("HEAD") == changes
    assert different(str(root), "HEAD") == {label: values[::-1] for label, values in changes.items()}


def test_what_is_no_state_a_missing_git_or_ranking_or_a_link_is_named(root, monkeypatch, capsys):
    def refusal(place="HEAD"):
        assert main(["compare", "--", place]) == 2
        return capsys.readouterr().err

    for place in ("HEAD~7", "data", "--output=x", ".."):
        assert "Name a" in refusal(place)
    (root / RANKING).unlink()
    assert "make final-eval" in refusal()
    (root / RANKING).symlink_to("/etc/passwd")
    commit_all(root, *KEPT_IN_GIT)
    (root / RANKING).unlink()
    assert "link" in refusal()
    monkeypatch.setenv("PATH", str(root))
    assert "git" in refusal()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("params.yaml", b"a: &a [x]\nb: [*a, *a]\n", "alias"),
        ("params.yaml", b"a: " + b"[" * 100_000, "not valid YAML"),
        ("params.yaml", b"a: 0x" + b"f" * 9000, "digits"),
        ("results/ranking.json", b"[" * 100_000, "JSON"),
    ],
)
def test_a_hostile_bundle_is_refused(bundle, name, content, words, tmp_path, capsys):
    (tmp_path / "bad.zip").write_bytes(packed(contents(bundle) | {name: content}))
    for command in ("compare", "verify"):
        assert main([command, "../bad.zip"]) == 2
        message = capsys.readouterr().err
        assert message.startswith("error: ../bad.zip: ")
        assert words in message
        assert "dvc repro" not in message
        assert f"pcgeval-{command}" not in message
        assert len(message) < 2000


def test_names_in_a_bundle_control_no_terminal(root, bundle, tmp_path, capsys):
    (tmp_path / "other.zip").write_bytes(bundle)
    values = json.loads((root / RANKING).read_text())
    values["teams"][0]["team"], values["classifier"] = "\x1b[2Jevil\u202e", "\x1b]0;wicked\x07"
    (root / RANKING).write_text(json.dumps(values))
    for option in ([], ["--json"]):
        assert main(["compare", "../other.zip", *option]) == 0
        shown = capsys.readouterr()
        assert "evil" in shown.out
        assert "wicked" in shown.out
        assert not {"\x1b", "\x07", "\u202e"} & {*shown.out, *shown.err}
