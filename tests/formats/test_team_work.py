"""A stage does the work of the models and teams whose files changed, and believes nothing that may have changed."""

from itertools import product
from pathlib import Path

import pytest
from params_for_tests import small_params

from pcgeval.core.files import write_text
from pcgeval.formats.stages import changed_teams

PARAMS = small_params("A", 1, teams=("one", "two"), models=("m", "n"))
ALL = list(product("mn", ("one", "two")))


@pytest.fixture
def root(tmp_path):
    for model, team in ALL:
        write(tmp_path / "in" / model / team / "file", "read")
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def changed(root, made_from=""):
    return changed_teams(
        PARAMS,
        root,
        [Path("out")],
        Path("in"),
        reads=lambda *place: [Path("in", *place)],
        writes=lambda *place: [Path("out", *place)],
        made_from=lambda model, _: [model, made_from],
    )


def run(root, made_from="", *, again=(), error=None):
    """Copy the input of each model and team that changed, and return those."""
    with changed(root, made_from) as places:
        worked = list(places)
        for place in worked:
            write_text(root.joinpath("out", *place, "file"), root.joinpath("in", *place, "file").read_text())
        places[:] = [place for place in places if place not in again]
        if error:
            raise error
    files = sorted(path.relative_to(root / "out") for path in (root / "out").rglob("*") if path.is_file())
    assert files == [Path(*place, "file") for place in ALL]
    return worked


def test_only_what_changed_is_done_and_files_of_nobody_go(root, monkeypatch):
    assert run(root) == ALL
    write(root / "out" / "m" / "three" / "file", "of a team that left")
    assert run(root) == []
    assert run(root, made_from="other settings", again=[("n", "two")]) == ALL
    assert run(root, made_from="other settings") == [("n", "two")]
    monkeypatch.setattr("pcgeval.formats.stages.installed_release", lambda: "another package")
    assert run(root, made_from="other settings") == ALL


@pytest.mark.parametrize("folder", ["in", "out"])
@pytest.mark.parametrize("change", ["same size", "more", "another inode", "removed", "new", "link"])
def test_no_change_of_a_file_is_missed(root, folder, change):
    if folder == "in" and change in {"removed", "link"}:
        pytest.skip("the work cannot read it")
    run(root)
    (root / "out" / "n" / "one" / "file").chmod(0o644)  # as DVC does before a stage
    file = root / folder / "m" / "two" / "file"
    match change:
        case "same size":
            file.write_text("evil")
        case "more":
            file.write_text("read more")
        case "another inode":
            write(file.with_name("other"), "evil")
            file.with_name("other").replace(file)
        case "removed":
            file.unlink()
        case "new":
            write(file.with_name("new"), "")
        case "link":
            file.unlink()
            file.symlink_to("nowhere")
    assert run(root) == [("m", "two")]
    assert run(root) == []


def test_after_an_error_all_of_it_is_done_again_and_nothing_is_removed(root):
    run(root)
    write(root / "in" / "m" / "one" / "file", "new")
    other = root / "out" / "other"
    other.write_text("of nobody")
    with pytest.raises(OSError, match="full"):
        run(root, error=OSError("full"))
    assert other.exists()
    assert run(root) == [("m", "one")]


def test_a_damaged_state_is_none(root):
    run(root)
    (root / ".cache" / "stages" / "out").write_bytes(b"\xff\n\x00")
    assert run(root) == ALL
