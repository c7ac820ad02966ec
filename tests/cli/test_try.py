"""A try is the competition in small: the same stages, the same numbers."""

import csv
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path

import pytest
from PIL import Image
from slow_ollama import DIGEST, SlowOllama

from pcgeval.cli.level_output import COLUMNS, drawing
from pcgeval.cli.main import main
from pcgeval.cli.output_folder import LOCK, MARKER, OutputFolderError
from pcgeval.cli.settings import (
    SettingsError,
    default_params,
    find_model_to_ask,
    load_submission_or_file,
    model_key,
    params_for_try,
)
from pcgeval.cli.try_output import describe, to_json, to_text
from pcgeval.cli.try_submission import TryResult, try_submission
from pcgeval.core.console import EXIT_BAD_INPUT
from pcgeval.core.files import write_json
from pcgeval.core.layout import Trial, recording_file
from pcgeval.core.locks import FolderBusyError, lock_folder
from pcgeval.core.params import Model, Params, load_params
from pcgeval.generation.generate import generate_stage
from pcgeval.llm.backends import open_backend
from pcgeval.submissions.load import Program, Prompt, load_submission

ROOT = Path(__file__).parents[2]
TEAM = "one-example"


@pytest.fixture(scope="module")
def demo() -> Params:
    params = load_params(ROOT / "params.yaml")
    return params.model_copy(
        update={"similarity": params.similarity.model_copy(update={"model": str(ROOT / "data/classifier")})}
    )


def try_recorded(
    demo: Params, model: str, folder: Path, letters: str = "LI", trials: int = 3
) -> tuple[TryResult, list[bool]]:
    """Try letters of the demo with a recorded model; also tell which trials were asked for."""
    params = params_for_try(demo, demo.models[model], letters, trials)
    asked: list[bool] = []
    result = try_submission(
        params,
        model_key(demo.models[model]),
        load_submission(ROOT / "data/submissions" / TEAM),
        open_backend(demo.models[model], ROOT / recording_file(model, TEAM)),
        folder,
        lambda _trial, _record, is_new: asked.append(is_new),
    )
    return result, asked


@pytest.fixture(scope="module")
def result(demo: Params, tmp_path_factory: pytest.TempPathFactory) -> TryResult:
    return try_recorded(demo, "qwen-coder-1b5", tmp_path_factory.mktemp("result"))[0]


def test_the_scores_are_those_of_the_competition(result: TryResult) -> None:
    with (ROOT / "results/official/qwen-coder-1b5/trial_scores.csv").open(encoding="utf-8", newline="") as lines:
        official = {
            (row["character"], int(row["trial"])): (Decimal(row["stabilityScore"]), Decimal(row["similarityScore"]))
            for row in csv.DictReader(lines)
            if row["teamName"] == TEAM
        }
    assert [each.trial for each in result.trials] == [Trial(letter, n) for letter in "IL" for n in (1, 2, 3)]
    for each in result.trials:
        stability, similarity = official[each.trial.letter, each.trial.number]
        assert (each.stability or 0, each.similarity or 0) == (stability, similarity)
    assert any(each.similarity for each in result.trials)


def test_a_second_try_asks_for_nothing(demo: Params, tmp_path: Path) -> None:
    first, asked = try_recorded(demo, "qwen-coder-0b5", tmp_path)
    again, asked_again = try_recorded(demo, "qwen-coder-0b5", tmp_path)
    assert (asked, asked_again) == ([True] * 6, [False] * 6)
    assert again == first


def test_a_zero_has_its_reason(demo: Params, tmp_path: Path) -> None:
    result, _ = try_recorded(demo, "smollm2-135m", tmp_path)
    for each in result.trials:
        assert each.stability is None
        assert each.picture is None
        assert f"failed in {each.failed_stage}: {each.reason}" in describe(each)
    assert "6 trials, 6 failed" in to_text(result, 78)


def test_a_level_is_drawn_in_half_blocks(result: TryResult) -> None:
    pictures = [each.picture for each in result.trials if each.picture]
    assert pictures
    for picture in pictures:
        lines = drawing(picture)
        assert 0 < len(lines) <= COLUMNS // 2
        assert set("".join(lines)) <= set(" ▀▄█")
        assert max(map(len, lines)) <= COLUMNS


def test_a_drawing_shows_what_the_picture_shows(tmp_path: Path) -> None:
    image = Image.new("L", (COLUMNS, COLUMNS), 255)
    for x, y in ((0, 2), (0, 3), (1, 2), (2, 3)):
        image.putpixel((x, y), 0)
    image.save(tmp_path / "level.png")
    assert drawing(tmp_path / "level.png") == ["█▀▄"]
    Image.new("L", (64, 64), 255).save(tmp_path / "empty.png")
    assert drawing(tmp_path / "empty.png") == []


def test_the_estimate_is_the_mean_times_the_trials(result: TryResult) -> None:
    seconds = [sum(exchange.reply.seconds for exchange in each.record.exchanges) for each in result.trials]
    assert result.seconds_of_full_run(780) == pytest.approx(780 * sum(seconds) / 6)
    values = to_json(result, 780)
    assert values["full_run"] == {"trials": 780, "seconds": round(780 * sum(seconds) / 6, 1)}


@pytest.mark.parametrize("letters", ["", "1", "i", "II"])
def test_letters_that_cannot_be_meant(demo: Params, letters: str) -> None:
    with pytest.raises(SettingsError, match="letters"):
        params_for_try(demo, demo.models["qwen-coder-1b5"], letters, 2)


def test_a_number_of_trials_that_cannot_be_meant(demo: Params) -> None:
    with pytest.raises(SettingsError, match="trials 0"):
        params_for_try(demo, demo.models["qwen-coder-1b5"], "I", 0)


def test_a_replayed_model_is_asked_for_real(demo: Params) -> None:
    replayed = demo.models["qwen-coder-1b5"]
    for name in ("qwen-coder-1b5", replayed.name):
        model = find_model_to_ask(demo, name, None)
        assert (model.backend, model.name, model.digest) == ("llamacpp", replayed.name, replayed.digest)
        assert model.options == replayed.options
    served = find_model_to_ask(demo, "qwen-coder-1b5", "http://127.0.0.1:1")
    assert (served.backend, served.host) == ("ollama", "http://127.0.0.1:1")
    unknown = find_model_to_ask(demo, "llama3:8b", None)
    assert (unknown.backend, unknown.name) == ("ollama", "llama3:8b")


def test_without_a_competition_the_default_params_hold() -> None:
    params = default_params()
    assert (params.limits.tokens, params.limits.seconds, params.competition.trials) == (25_000, 500, 10)
    assert model_key(find_model_to_ask(params, "a/b:c", None)) == "a-b-c"


def test_a_folder_a_program_and_a_prompt_can_be_tried(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print()", encoding="utf-8")
    (tmp_path / "other.txt").write_text("Build <OBJECT>.", encoding="utf-8")
    assert load_submission_or_file(tmp_path / "main.py").work == Program(tmp_path, "main.py")
    assert load_submission_or_file(tmp_path / "other.txt").work == Prompt("Build <OBJECT>.")
    assert load_submission_or_file(ROOT / "data/submissions" / TEAM).team == TEAM
    with pytest.raises(SettingsError, match="no such submission"):
        load_submission_or_file(tmp_path / "nothing")
    for name in ("README.md", "submission.zip"):
        (tmp_path / name).write_text("Build <OBJECT>.")
        with pytest.raises(SettingsError, match="Name the submission's folder"):
            load_submission_or_file(tmp_path / name)


def all_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_pcgeval_did_not_make_is_refused_and_stays_as_it_is(demo: Params, tmp_path: Path) -> None:
    for name in ("levels/mine.xml", "raw/notes.txt", "similarity/I.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("mine", encoding="utf-8")
    before = all_files(tmp_path)
    with pytest.raises(OutputFolderError, match="already exists"):
        try_recorded(demo, "qwen-coder-0b5", tmp_path)
    assert all_files(tmp_path) == before
    program, model = str(ROOT / "data/submissions" / TEAM), "qwen2.5-coder:0.5b-instruct-q4_K_M"
    assert main(["try", program, "--model", model, "--out", str(tmp_path)]) == EXIT_BAD_INPUT
    assert all_files(tmp_path) == before


def test_files_of_others_in_the_folder_are_neither_removed_nor_replaced(demo: Params, tmp_path: Path) -> None:
    try_recorded(demo, "qwen-coder-0b5", tmp_path, "I")
    own = [f"{step}/notes.txt" for step in ("raw", "raw/I", "levels", "images", "stability", "diversity", "unfinished")]
    for name in own:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("mine", encoding="utf-8")
    try_recorded(demo, "qwen-coder-0b5", tmp_path, "IL")
    assert [(tmp_path / name).read_text(encoding="utf-8") for name in own] == ["mine"] * len(own)
    (tmp_path / "raw/A").mkdir()
    (tmp_path / f"raw/A/{TEAM}_A_1.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputFolderError, match="did not write"):
        try_recorded(demo, "qwen-coder-0b5", tmp_path, "A")
    with pytest.raises(OutputFolderError, match="holds one-example"):
        try_recorded(demo, "qwen-coder-1b5", tmp_path, "I")


def test_a_try_that_ends_before_another_gets_the_lock_keeps_its_files(
    demo: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock_after_another_try(folder: Path, lock: Path) -> AbstractContextManager[None]:
        monkeypatch.undo()
        try_recorded(demo, "qwen-coder-0b5", folder, "L", 1)
        return lock_folder(folder, lock)

    monkeypatch.setattr("pcgeval.cli.try_submission.lock_folder", lock_after_another_try)
    _, asked = try_recorded(demo, "qwen-coder-0b5", tmp_path, "I", 1)
    assert asked == [True]
    for letter in "LI":
        assert try_recorded(demo, "qwen-coder-0b5", tmp_path, letter, 1)[1] == [False]


def test_a_try_killed_before_it_wrote_its_first_file_can_be_repeated(demo: Params, tmp_path: Path) -> None:
    with lock_folder(tmp_path, tmp_path / LOCK), pytest.raises(FolderBusyError):
        try_recorded(demo, "qwen-coder-0b5", tmp_path, "I", 1)
    assert list(all_files(tmp_path)) == [LOCK]
    assert try_recorded(demo, "qwen-coder-0b5", tmp_path, "I", 1)[1] == [True]


def test_other_letters_keep_the_earlier_ones(demo: Params, tmp_path: Path) -> None:
    first, _ = try_recorded(demo, "qwen-coder-1b5", tmp_path, "I")
    before = {name: content for name, content in all_files(tmp_path).items() if "/I" in name}
    assert any(name.startswith("images/") for name in before)
    try_recorded(demo, "qwen-coder-1b5", tmp_path, "L")
    assert {name: content for name, content in all_files(tmp_path).items() if "/I" in name} == before
    again, asked = try_recorded(demo, "qwen-coder-1b5", tmp_path, "I")
    assert (again, asked) == (first, [False] * 3)


def test_fewer_trials_show_no_diversity_of_an_older_run(demo: Params, tmp_path: Path) -> None:
    assert try_recorded(demo, "qwen-coder-1b5", tmp_path, "I", 3)[0].diversity
    fewer, asked = try_recorded(demo, "qwen-coder-1b5", tmp_path, "I", 1)
    assert (fewer.diversity, asked) == ({}, [False])
    assert not (tmp_path / "diversity/I.json").exists()
    assert try_recorded(demo, "qwen-coder-1b5", tmp_path, "I", 3)[1] == [False] * 3, "the replies were kept"


def test_a_try_and_the_competition_share_the_replies_of_the_models(
    demo: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    submission = load_submission(ROOT / "data/submissions" / TEAM)
    with SlowOllama(0) as server:
        model = Model(backend="ollama", name="m:1", host=server.address, digest=DIGEST)
        params = params_for_try(demo, model, "L", 1)
        backend = open_backend(model, Path())
        for folder in ("one", "other"):
            try_submission(params, model_key(model), submission, backend, Path(folder), lambda *_: None)
        generate_stage(params, model_key(model), submission, backend, Path("raw"), lambda *_: None)
        assert len(server.asked) == 1


@pytest.mark.parametrize("name", ["../mine/I.json", "/mine/I.json", "levels", "images/../mine/I.json", 7])
def test_a_marker_that_was_altered_reaches_no_file_outside(demo: Params, tmp_path: Path, name: object) -> None:
    mine = tmp_path / "mine/I.json"
    mine.parent.mkdir()
    mine.write_text("mine", encoding="utf-8")
    marker = {"team": TEAM, "model": model_key(demo.models["qwen-coder-0b5"]), "files": [name]}
    write_json(tmp_path / "out" / MARKER, marker)
    with pytest.raises(OutputFolderError, match="altered"):
        try_recorded(demo, "qwen-coder-0b5", tmp_path / "out", "I", 1)
    assert mine.read_text(encoding="utf-8") == "mine"
