"""Two states of a competition side by side, each a revision, a folder or a bundle: what changed in them is shown."""

import io
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml
from workspace import DIGESTS, OTHER_DIGEST

from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes
from pcgeval.core.stage_files import LetterRow, csv_text, read_csv
from pcgeval.proof.bundle import MANIFEST, make_bundle
from pcgeval.proof.compare import CompareError, compare_states

RANKING = Path("results/ranking.json")


def commit(folder: Path) -> Path:
    """Commit what a competition keeps in git, without what DVC keeps."""
    for words in (
        ("init", "--quiet"),
        ("add", "--force", "params.yaml", "results", "data/submissions"),
        ("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "--quiet", "--message", "evaluated"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def change_ranking(folder: Path, change) -> None:
    values = json.loads((folder / RANKING).read_text())
    change(values)
    (folder / RANKING).write_text(json.dumps(values))


@pytest.fixture
def root(competition, tmp_path, monkeypatch):
    """A copy of the small competition, which is also the working folder."""
    folder = Path(shutil.copytree(competition, tmp_path / "competition"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def repository(root, changed):
    """The small competition in the first commit and beta's other prompt in the second and in the folder."""
    commit(root)
    for name in ("results", "data/submissions"):
        shutil.rmtree(root / name)
        shutil.copytree(changed / name, root / name)
    return commit(root)


def different(before, after, root):
    """Return what is different, by kind, name, team and model."""
    values = compare_states(before, after, root)
    return {
        tuple(filter(None, vars(value.label).values())): (value.before, value.after)
        for value in values
        if value.before != value.after and value.label.kind != "state"
    }


def ranked(folder):
    ranking = json.loads((folder / RANKING).read_text())
    return {line["team"]: line for line in ranking["teams"]}


def test_a_state_is_the_same_as_itself_wherever_it_is_read_from(root, bundle, tmp_path):
    commit(root)
    (tmp_path / "before.zip").write_bytes(bundle)
    for place in ("HEAD", "../before.zip", str(root), None):
        assert different("HEAD", place, root) == {}


def test_another_prompt_changes_its_team_s_scores(repository, competition, changed):
    found = different("HEAD~1", "HEAD", repository)
    assert found == different(str(competition), None, repository) == different("HEAD~1", None, repository)
    assert {key[1:] for key in found if key[0] == "submission"} == {("beta",)}
    assert found[("trials",)] != found[("measurements",)]
    assert not {"params", "model", "classifier", "code"} & {key[0] for key in found}
    one, other = ranked(competition), ranked(changed)
    for team in ("alpha", "beta"):
        assert found[("normalised", team)] == (one[team]["normalised"], other[team]["normalised"])
        for model in ("small", "large"):
            scores = tuple(lines[team]["models"][model]["score"] for lines in (one, other))
            assert found.get(("score", team, model), (scores[0], scores[0])) == scores
    for model in ("small", "large"):
        tables = [
            read_csv(LetterRow, folder / f"results/official/{model}/character_scores.csv")
            for folder in (competition, changed)
        ]
        for before, after in zip(*tables, strict=True):
            key = ("letter", before.letter, before.team, model)
            assert (key in found) == (before.score != after.score)


def test_models_and_other_params_are_named_with_both_values(root):
    commit(root)
    values = yaml.safe_load((root / "params.yaml").read_text())
    values["physics"]["trials"] = 3
    values["models"]["small"]["digest"] = OTHER_DIGEST
    values["models"]["large"]["options"] = {"temperature": 0.5}
    values["scoring"]["baseline"] = None
    (root / "params.yaml").write_text(yaml.safe_dump(values))
    assert different("HEAD", None, root) == {
        ("params", "physics.trials"): (2, 3),
        ("model", "small.digest"): (DIGESTS["small"], OTHER_DIGEST),
        ("model", "large.options.temperature"): (None, 0.5),
        ("params", "scoring.baseline"): ("alpha", None),
    }


@pytest.mark.parametrize(
    ("part", "kind"),
    [("recordings", "replies"), ("trials", "trials"), ("measurements", "measurements"), ("source", "code")],
)
def test_parts_of_the_result_hash_name_what_differs(root, part, kind):
    commit(root)
    change_ranking(root, lambda values: values["result"]["parts"].update({part: "0" * 64}))
    assert {key: pair[1] for key, pair in different("HEAD", None, root).items()} == {(kind,): "0" * 64}


def test_another_classifier_and_teams_that_are_gone_or_new_are_shown(root):
    commit(root)

    def change(values):
        values["classifier"] = "another sha256:00"
        values["teams"] = [line | {"team": "gamma" if line["team"] == "beta" else "alpha"} for line in values["teams"]]

    change_ranking(root, change)
    found = different("HEAD", None, root)
    assert found[("classifier",)][1] == "another sha256:00"
    assert found[("status", "beta")] == ("ranked", None)
    assert found[("status", "gamma")] == (None, "ranked")


def test_a_ranking_without_a_result_hash_is_compared(root):
    commit(root)
    change_ranking(root, lambda values: values.pop("result"))
    assert different("HEAD", None, root)[("result hash",)][1] is None


@pytest.mark.usefixtures("repository")
def test_the_table_shows_both_states(capsys):
    assert main(["compare", "HEAD~1"]) == 0
    shown = capsys.readouterr().out
    lines = {line[: line.index("  ")]: line.split() for line in shown.splitlines() if "  " in line}
    short = json.loads(RANKING.read_text())["result"]["sha256"][:12]
    assert lines["result hash"][-1] == short
    assert lines["alpha status"][-2:] == ["baseline", "="]
    assert "submission beta" in lines
    assert "params" not in shown
    assert "beta small letter I" in shown or "beta small letter T" in shown


def test_five_letters_are_shown_and_all_are_in_json(root, capsys):
    commit(root)
    path = root / "results/official/small/character_scores.csv"
    (row, *_) = read_csv(LetterRow, path)
    path.write_text(csv_text(LetterRow, [row.model_copy(update={"letter": letter}) for letter in "ABCDEFGH"]))
    assert main(["compare", "HEAD"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(f"{row.team} small letter") == 6
    assert "more: --json" in shown
    assert main(["compare", "HEAD", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    letters = {value["name"] for value in values if value["kind"] == "letter" and value["team"] == row.team}
    assert letters >= set("ABCDEFGH")


def test_an_unfinished_evaluation_is_warned_of(root, capsys):
    commit(root)
    shutil.rmtree(root / "data/similarity")
    assert main(["compare", "HEAD"]) == 0
    assert "earlier run" in capsys.readouterr().err


def test_nothing_in_the_repository_is_changed(repository):
    before = subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True, text=True).stdout
    files = sorted(repository.rglob("*"))
    assert main(["compare", "HEAD~1", "HEAD"]) == 0
    assert sorted(repository.rglob("*")) == files
    after = subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True, text=True).stdout
    assert after == before


def test_a_competition_in_a_folder_of_a_repository_is_compared(competition, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(competition, tmp_path / "repository" / "final"))
    commit(folder)
    shutil.move(folder / ".git", tmp_path / "repository" / ".git")
    for words in (
        ("add", "--all"),
        ("-c", "user.name=x", "-c", "user.email=x@y.z", "commit", "--quiet", "-m", "moved"),
    ):
        subprocess.run(["git", *words], cwd=tmp_path / "repository", check=True)
    monkeypatch.chdir(folder)
    assert different("HEAD", None, Path()) == {}


@pytest.mark.parametrize("place", ["nothing", "HEAD~7", "data", "--output=x", ".."])
@pytest.mark.usefixtures("repository")
def test_what_is_no_state_is_refused(place, capsys):
    assert main(["compare", "--", place]) == 2
    assert "Name a" in capsys.readouterr().err


def test_a_folder_without_a_ranking_is_refused(repository, capsys):
    (repository / RANKING).unlink()
    assert main(["compare", "HEAD"]) == 2
    assert "make final-eval" in capsys.readouterr().err


def test_a_folder_outside_git_is_said_to_be_no_repository(root, monkeypatch, capsys):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))
    assert main(["compare", "HEAD"]) == 2
    assert "not a git repository" in capsys.readouterr().err


def test_without_git_it_is_said(root, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(root))
    assert main(["compare", "HEAD"]) == 2
    assert "git" in capsys.readouterr().err


def test_a_link_that_leads_out_of_a_revision_is_refused(root, capsys):
    (root / RANKING).unlink()
    (root / RANKING).symlink_to("/etc/passwd")
    commit(root)
    (root / RANKING).unlink()
    assert main(["compare", "HEAD"]) == 2
    assert "link" in capsys.readouterr().err


def repacked(bundle: bytes, changes: dict[str, bytes]) -> bytes:
    """Return a bundle with other files and a manifest that is right about them."""
    archive = zipfile.ZipFile(io.BytesIO(bundle))
    files = {name: archive.read(name) for name in archive.namelist() if name != MANIFEST} | changes
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in files.items():
            target.writestr(name, content)
        hashes = {name: sha256_bytes(content) for name, content in files.items()}
        target.writestr(MANIFEST, json.dumps({"files": hashes}))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("params.yaml", b"a: &a [x]\nb: [*a, *a]\n", "alias"),
        ("params.yaml", b"a: " + b"[" * 5000, "nested"),
        ("params.yaml", b"a: 0x" + b"f" * 9000, "characters"),
        ("params.yaml", b"a: " + b"x " * 200_000, "bytes"),
        ("params.yaml", b"\xff\xfe\x00", "YAML"),
        ("params.yaml", b"teams: [../../x]\n", "missing"),
        ("results/ranking.json", b"[" * 100_000, "JSON"),
        ("results/ranking.json", b"{}", "required"),
        ("results/official/small/character_scores.csv", b'"a\n', "CSV|column|required"),
        ("results/official/small/character_scores.csv", b"\xff", "UTF-8"),
    ],
)
def test_a_hostile_bundle_is_refused(root, bundle, name, content, words, tmp_path):
    (tmp_path / "bad.zip").write_bytes(repacked(bundle, {name: content}))
    with pytest.raises(CompareError, match=words) as error:
        compare_states("../bad.zip", None, root)
    assert str(error.value).startswith("../bad.zip: ")
    assert "pcgeval-compare" not in str(error.value)
    assert len(str(error.value)) < 2000


@pytest.mark.usefixtures("root")
def test_a_damaged_bundle_is_refused(bundle, tmp_path, capsys):
    (tmp_path / "bad.zip").write_bytes(bundle[:-1000])
    assert main(["compare", "../bad.zip"]) == 2
    assert "bad.zip" in capsys.readouterr().err


def test_names_in_a_bundle_cannot_write_on_a_terminal(root, bundle, tmp_path, capsys):
    (tmp_path / "other.zip").write_bytes(bundle)
    change_ranking(root, lambda values: values["teams"][0].update(team="\x1b[2Jevil\u202e"))
    change_ranking(root, lambda values: values.update(classifier="\x1b]0;evil\x07"))
    for option in ([], ["--json"]):
        assert main(["compare", "../other.zip", *option]) == 0
        shown = capsys.readouterr()
        assert "evil" in shown.out
        assert not {"\x1b", "\x07", "\u202e"} & {*shown.out, *shown.err}


def test_a_bundle_of_a_changed_competition_is_compared(changed, root, tmp_path):
    (tmp_path / "after.zip").write_bytes(make_bundle(changed))
    assert ("submission", "beta") in different("../after.zip", None, root)
