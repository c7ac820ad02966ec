"""The commitment: `check` names what is not committed, `audit --since` what changed after a published commit."""

import os
import shutil
from pathlib import Path

import pytest
import yaml
from params_for_tests import small_values
from workspace import CompetitionFolder, commit_all, git, write_submission

from pcgeval import PcgevalError
from pcgeval.core.files import write_text
from pcgeval.proof.commitment import changes_since, full_commit, read_commitment

MODEL = {"backend": "recorded", "name": "small:1b", "digest": "a" * 64}
HOSTED = {"backend": "recorded", "name": "hosted", "digest": f"unpinned:{64 * 'b'}"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompetitionFolder:
    """The inputs of a competition in a folder of a git repository, as the working directory."""
    place = tmp_path / "repository" / "competition"
    for team in ("alpha", "beta"):
        write_submission(place, team, {"prompt.txt": f"Build <OBJECT>, {team}.", "notes/plan.txt": "tall"})
    for name in ("classifier/config.json", "rubrics/competition/rubric.json", "locks/alpha.txt"):
        write_text(place / "data" / name, "{}")
    values = small_values("IT", teams=["alpha", "beta"], models={"small": MODEL, "large": HOSTED})
    (place / "params.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.chdir(place)
    git(Path(), "init", "--quiet", "..")
    return CompetitionFolder(Path())


@pytest.fixture
def commit(folder: CompetitionFolder) -> str:
    assert folder.folder == Path()
    return commit_all(Path())


@pytest.mark.usefixtures("folder")
def test_what_is_not_committed_is_named_with_the_commit():
    commit, names = read_commitment(Path())
    assert (commit, len(names), names[-1]) == (None, 10, "params.yaml")
    commit = commit_all(Path())
    assert read_commitment(Path()) == (commit, [])
    write_text(Path("results/ranking.json"), "{}")
    write_text(Path(".gitignore"), "*.bin\n")
    write_text(Path("data/submissions/beta/weights.bin"), "ignored by git, and not by a run")
    Path("data/locks/alpha.txt").unlink()
    git(Path(), "rm", "--quiet", "--cached", "params.yaml")
    git(Path(), "update-index", "--assume-unchanged", "data/rubrics/competition/rubric.json")
    write_text(Path("data/rubrics/competition/rubric.json"), "[]")
    changed = ["data/locks/alpha.txt", "data/rubrics/competition/rubric.json", "data/submissions/beta/weights.bin"]
    assert read_commitment(Path()) == (commit, changed)


def test_each_changed_setting_is_named_with_both_values_and_places_and_replays_are_not(folder, commit):
    served = {"backend": "openai", "name": "hosted", "base_url": "http://127.0.0.1:9/v1"}
    live = {**MODEL, "backend": "ollama", "host": "127.0.0.1:9", "concurrency": 2, "stream": False}
    folder.change_params("models", small=live, large=served)
    folder.change_params("similarity", batch=1, device="cuda")
    folder.change_params("limits", outage_seconds=7)
    folder.change_params("scoring", bootstrap=1000)  # the default
    folder.change("execution", {"scheduler": "tcp://10.0.0.1:8786"})
    assert not list(changes_since(Path(), commit))
    folder.change_params("models", small={**live, "options": {"temperature": 1}})
    folder.change_params("competition", seed=7)
    folder.change_params("scoring", baseline="alpha")
    folder.change_params("rubric", votes=3)
    assert list(changes_since(Path(), commit)) == [
        f"params.yaml: {change} in the commit {commit[:12]}."
        for change in (
            "competition.seed is 7, and was 1",
            "models.small.options.temperature is 1, and was null",
            "rubric.votes is 3, and was 1",
            "scoring.baseline is alpha, and was null",
        )
    ]


def test_a_digest_may_be_pinned_after_the_commit_and_not_replaced(folder):
    folder.change("models", {"small": {"backend": "ollama", "name": "small:1b"}, "large": MODEL})
    commit = commit_all(Path())
    folder.change("models", {"small": MODEL, "large": {**MODEL, "digest": "c" * 64}})
    (change,) = changes_since(Path(), commit)
    assert change.startswith("params.yaml: models.large.digest is cccc")


def test_settings_of_another_release_are_compared_as_they_stand(folder):
    teams = {"alpha": {"number": 1}, "beta": {"title": "B"}}
    folder.change("teams", teams)
    folder.change_params("competition", of_old=True)
    commit = commit_all(Path())
    folder.change("teams", {"alpha": {"number": True}, "beta": {"title": "B\n\x1b", "entry": "old.py"}})
    folder.change_params("similarity", batch=1)
    number, entry, title = changes_since(Path(), commit)
    assert "teams.alpha.number is true, and was 1" in number
    assert "teams.beta.entry is old.py, and was null" in entry
    assert "teams.beta.title" in title
    assert title.isprintable()
    Path("params.yaml").write_text("[")
    (change,) = changes_since(Path(), commit)
    assert "no YAML" in change
    Path("params.yaml").unlink()
    (change,) = changes_since(Path(), commit)
    assert "removed" in change


def test_teams_and_files_that_were_added_removed_or_changed_are_named(commit):
    shutil.copytree("data/submissions/alpha", "data/submissions/gamma")
    for number in range(10):
        write_text(Path(f"data/submissions/alpha/notes/{number}.txt"), "more")
    shutil.rmtree("data/submissions/beta")
    write_text(Path("data/locks/alpha.txt"), "example==1.0")
    write_text(Path("data/locks/gamma.txt"), "")
    os.utime("data/classifier/config.json", (0, 0))
    write_text(Path("data/rubrics/competition/.DS_Store"), "of no stage")
    after, files = f"after the commit {commit[:12]}", ", ".join(f"notes/{number}.txt" for number in range(5))
    changes = [
        f"data/submissions: team alpha was changed ({files} and 5 more) {after}.",
        f"data/submissions: team beta was removed {after}.",
        f"data/submissions: team gamma was added {after}.",
        f"data/locks: changed {after}: alpha.txt, gamma.txt.",
    ]
    assert list(changes_since(Path(), commit)) == changes
    commit_all(Path())
    assert list(changes_since(Path(), commit))[:3] == changes[:3]
    shutil.move("data/locks", "elsewhere")
    Path("data/locks").symlink_to("../elsewhere")
    assert any(change.startswith("data/locks: ") and "link" in change for change in changes_since(Path(), commit))


@pytest.mark.parametrize("name", ["f" * 40, "nonesuch", "--all", "HEAD:params.yaml", ""])
def test_an_unknown_commit_is_refused(commit, name):
    assert full_commit(Path(), commit[:9]) == full_commit(Path(), "HEAD") == commit
    with pytest.raises(PcgevalError, match="git log"):
        full_commit(Path(), name)


def test_a_folder_in_no_repository_is_refused(tmp_path):
    for read in (read_commitment, lambda root: full_commit(root, "HEAD")):
        with pytest.raises(PcgevalError, match="git"):
            read(tmp_path)
