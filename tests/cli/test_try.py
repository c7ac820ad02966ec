"""A try is the competition in small: the same stages, the same numbers."""

import json
from contextlib import AbstractContextManager
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
    load_submission_file,
    model_key,
    params_for_try,
)
from pcgeval.cli.try_output import to_json, trial_text
from pcgeval.cli.try_submission import TriedTrial, baseline_summary, summary, try_submission
from pcgeval.core.console import EXIT_BAD_INPUT
from pcgeval.core.files import write_json
from pcgeval.core.layout import Trial, recording_file
from pcgeval.core.locks import FolderBusyError, lock_folder
from pcgeval.core.params import Model, Params, load_params
from pcgeval.core.stage_files import TrialRow, read_csv
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.llm.backends import open_backend
from pcgeval.similarity.classifier import Classifier, loaded_classifier
from pcgeval.submissions.load import Program, Prompt, load_submission

ROOT = Path(__file__).parents[2]
TEAM = "one-example"


@pytest.fixture(scope="module")
def demo() -> Params:
    params = load_params(ROOT / "params.yaml")
    return params.model_copy(
        update={"similarity": params.similarity.model_copy(update={"model": str(ROOT / "data/classifier")})}
    )


def network() -> Classifier:
    return loaded_classifier(ROOT / "data/classifier", device="cpu")


def try_recorded(
    demo: Params, model: str, folder: Path, letters: str = "LI", trials: int = 3
) -> tuple[list[TriedTrial], list[bool]]:
    """Try letters of the demo with a recorded model; also tell which trials were asked for."""
    params = params_for_try(demo, demo.models[model], letters, trials)
    tried: list[TriedTrial] = []
    try_submission(
        params,
        model_key(demo.models[model]),
        load_submission(ROOT / "data/submissions" / TEAM),
        open_backend(demo.models[model], ROOT / recording_file(model, TEAM)),
        network(),
        folder,
        tried.append,
    )
    return tried, [each.is_new for each in tried]


def scores(tried: list[TriedTrial]) -> list[tuple[Trial, float, float, str | None]]:
    return [(each.trial, each.level.stability, each.level.similarity, each.level.reason) for each in tried]


@pytest.fixture(scope="module")
def tried(demo: Params, tmp_path_factory: pytest.TempPathFactory) -> list[TriedTrial]:
    return try_recorded(demo, "qwen-coder-1b5", tmp_path_factory.mktemp("result"))[0]


def test_the_scores_are_those_of_the_competition(tried: list[TriedTrial]) -> None:
    official = {
        (row.letter, row.trial): row
        for row in read_csv(TrialRow, ROOT / "results/official/qwen-coder-1b5/trial_scores.csv")
        if row.team == TEAM
    }
    assert [each.trial for each in tried] == [Trial(letter, n) for letter in "IL" for n in (1, 2, 3)]
    for each in tried:
        row = official[each.trial.letter, each.trial.number]
        # the official script rounds to 20 digits
        assert (each.level.stability, each.level.similarity) == (
            pytest.approx(float(row.stability)),
            float(row.similarity),
        )
    assert any(each.level.similarity for each in tried)
    for letter in summary(TEAM, tried, "softmax"):
        assert letter.diversity == float(official[letter.letter, 1].diversity)


def test_the_baseline_of_the_checkout_is_told(demo: Params) -> None:
    asked = find_model_to_ask(demo, "smollm2", None)
    (one,) = baseline_summary(demo, asked, "I", ROOT / "results/official")
    assert (one.team, one.letter, one.trials) == ("zero-shot", "I", 3)
    (other,) = baseline_summary(demo, demo.models["qwen-coder-1b5"], "I", ROOT / "results/official")
    rows = read_csv(TrialRow, ROOT / "results/official/qwen-coder-1b5/trial_scores.csv")
    own = [row for row in rows if (row.team, row.letter) == ("zero-shot", "I")]
    assert other.score == pytest.approx(sum(float(row.stability * row.similarity) for row in own) / 3)
    assert baseline_summary(demo, Model(backend="ollama", name="m"), "I", ROOT / "results/official") == ()
    assert baseline_summary(default_params(), asked, "I") == ()


def test_a_second_try_asks_for_nothing(demo: Params, tmp_path: Path) -> None:
    first, asked = try_recorded(demo, "qwen-coder-0b5", tmp_path)
    again, asked_again = try_recorded(demo, "qwen-coder-0b5", tmp_path)
    assert (asked, asked_again) == ([True] * 6, [False] * 6)
    assert scores(again) == scores(first)


def test_a_zero_has_its_reason(demo: Params, tmp_path: Path) -> None:
    failed, _ = try_recorded(demo, "smollm2-135m", tmp_path)
    for each in failed:
        assert (each.level.score, each.picture) == (0, None)
        assert f"failed in {each.level.failed_stage}: {each.level.reason}" in trial_text(each)
        assert str(each.response) in trial_text(each)


def test_a_level_is_drawn_in_half_blocks(tried: list[TriedTrial]) -> None:
    pictures = [each.picture for each in tried if each.picture]
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


def test_the_estimate_is_the_mean_times_the_trials(tried: list[TriedTrial]) -> None:
    seconds = [sum(exchange.reply.seconds for exchange in each.record.exchanges) for each in tried]
    values = to_json(tried, summary(TEAM, tried, "softmax"), (), 780)
    assert values["full_run"] == {"trials": 780, "seconds": round(780 * sum(seconds) / 6, 1)}
    assert json.loads(json.dumps(values))["trials"][0]["likeliest"]


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


def test_a_model_is_found_by_the_beginning_of_its_name(demo: Params) -> None:
    for params in (demo, default_params()):  # the same request, so the same reply, in a competition and outside of one
        model = find_model_to_ask(params, "smollm2", None)
        assert (model.backend, model.name) == ("llamacpp", "smollm2:135m-instruct-q4_1")
        assert model.options == demo.models["smollm2-135m"].options
        assert params.competition.seed == demo.competition.seed
        assert find_model_to_ask(params, "SmolLM2:135M-instruct-q4_1", None) == model
        assert find_model_to_ask(params, "qwen2.5-coder:1.5b", None).name == "qwen2.5-coder:1.5b-instruct-q4_K_M"
        with pytest.raises(SettingsError, match=r"could be qwen2.5-coder:0.5b.* or qwen2.5-coder:1.5b.*Write more"):
            find_model_to_ask(params, "qwen2.5-coder", None)
        served = find_model_to_ask(params, "smollm2", "http://127.0.0.1:1")
        assert (served.backend, served.name) == ("ollama", "smollm2")  # as the server calls it


def test_an_endpoint_has_the_interface_of_openai(demo: Params) -> None:
    address = "http://127.0.0.1:1234/v1"
    model = find_model_to_ask(default_params(), "m", None, address)
    assert (model.backend, model.name, model.base_url) == ("openai", "m", address)
    known = find_model_to_ask(demo, "qwen-coder-1b5", None, address)
    assert (known.name, known.digest) == ("qwen2.5-coder:1.5b-instruct-q4_K_M", None)
    assert "num_ctx" not in known.options  # which no endpoint can be told
    with pytest.raises(SettingsError, match="without a key or password"):
        find_model_to_ask(default_params(), "m", None, "http://me:secret@127.0.0.1/v1")
    with pytest.raises(SettingsError, match="holds a password"):
        find_model_to_ask(default_params(), "m", "http://me:secret@127.0.0.1")


def test_without_a_competition_the_default_params_hold() -> None:
    params = default_params()
    assert (params.limits.tokens, params.limits.seconds, params.competition.trials) == (25_000, 500, 10)
    assert model_key(find_model_to_ask(params, "a/b:c", None)) == "a-b-c"


def test_a_program_and_a_prompt_can_be_tried(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print()", encoding="utf-8")
    (tmp_path / "other.txt").write_text("Build <OBJECT>.", encoding="utf-8")
    assert load_submission_file(tmp_path / "main.py").work == Program(tmp_path, "main.py")
    assert load_submission_file(tmp_path / "other.txt").work == Prompt("Build <OBJECT>.")
    with pytest.raises(SettingsError, match="no such submission"):
        load_submission_file(tmp_path / "nothing")
    (tmp_path / "README.md").write_text("Build <OBJECT>.")
    with pytest.raises(SettingsError, match="Name the submission's folder"):
        load_submission_file(tmp_path / "README.md")


def all_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_pcgeval_did_not_make_is_refused_and_stays_as_it_is(demo: Params, tmp_path: Path) -> None:
    for name in ("levels/mine.xml", "raw/notes.txt", "printed/I.json"):
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
    own = [
        f"{step}/notes.txt" for step in ("raw", "raw/I", "levels", "images", "intermediate", "printed", "unfinished")
    ]
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
    assert (scores(again), asked) == (scores(first), [False] * 3)


def test_fewer_trials_show_no_diversity_of_an_older_run(demo: Params, tmp_path: Path) -> None:
    first = try_recorded(demo, "qwen-coder-1b5", tmp_path, "I", 3)[0]
    assert summary(TEAM, first, "softmax")[0].diversity
    assert summary(TEAM, first, "cls")[0].diversity
    fewer, asked = try_recorded(demo, "qwen-coder-1b5", tmp_path, "I", 1)
    assert (summary(TEAM, fewer, "softmax")[0].diversity, asked) == (None, [False])
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
            try_submission(params, model_key(model), submission, backend, network(), Path(folder), lambda _: None)
        do_trials(params, model_key(model), [TeamTrials(submission, backend, Path("raw"))], lambda *_: None)
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
