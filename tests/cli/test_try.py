"""A try is the competition in small: the same stages, the same numbers, on the recorded replies of the demo."""

from pathlib import Path

import pytest
from slow_ollama import DIGEST, SlowOllama

from pcgeval.cli.settings import SettingsError, default_params, find_model_to_ask, params_for_try
from pcgeval.cli.try_output import TriedTrial, trial_text
from pcgeval.cli.try_submission import LOCK, OutputFolderError, Try, baseline_summary, summary
from pcgeval.core.console import StatusLine
from pcgeval.core.layout import Trial, recording_file
from pcgeval.core.locks import FolderBusyError, lock_folder
from pcgeval.core.params import Model, Params, load_params
from pcgeval.core.stage_files import TrialRow, read_csv
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.llm.backends import open_backend
from pcgeval.similarity.classifier import Classifier, loaded_classifier
from pcgeval.submissions.load import load_submission

ROOT = Path(__file__).parents[2]
TEAM = "one-example"


@pytest.fixture(scope="module")
def demo() -> Params:
    params = load_params(ROOT / "params.yaml")
    similarity = params.similarity.model_copy(update={"model": str(ROOT / "data/classifier")})
    return params.model_copy(update={"similarity": similarity})


def classifier() -> Classifier:
    return loaded_classifier(ROOT / "data/classifier", device="cpu")


def try_recorded(demo: Params, model: str, folder: Path, letters: str = "LI", trials: int = 3) -> list[TriedTrial]:
    """Try letters of the demo with a recorded model, and return the trials in order: they end in any."""
    params = params_for_try(demo, demo.models[model], letters, trials)
    submission = load_submission(ROOT / "data/submissions" / TEAM)
    run = Try(params, submission, classifier(), folder, StatusLine(), json=True)
    run.do_trials(open_backend(demo.models[model], ROOT / recording_file(model, TEAM)))
    return sorted(run.tried, key=lambda trial: trial.trial)


def new(tried: list[TriedTrial]) -> list[bool]:
    return [trial.is_new for trial in tried]


def scores(tried: list[TriedTrial]) -> list[tuple[Trial, float, float, str | None]]:
    return [(trial.trial, trial.level.stability, trial.level.similarity, trial.level.reason) for trial in tried]


def official_rows(team: str, letters: str) -> list[TrialRow]:
    rows = read_csv(TrialRow, ROOT / "results/official/qwen-coder-1b5/trial_scores.csv")
    return [row for row in rows if row.team == team and row.letter in letters]


def test_the_scores_are_those_of_the_competition(demo: Params, tmp_path: Path) -> None:
    tried = try_recorded(demo, "qwen-coder-1b5", tmp_path)
    official = {Trial(row.letter, row.trial): row for row in official_rows(TEAM, "IL")}
    assert [trial.trial for trial in tried] == sorted(official)
    for trial in tried:
        row = official[trial.trial]
        assert trial.level.stability == pytest.approx(float(row.stability))  # the official script rounds to 20 digits
        assert trial.level.similarity == float(row.similarity)
    assert any(trial.level.similarity for trial in tried)
    for letter in summary(TEAM, tried, "softmax"):
        assert letter.diversity == float(official[Trial(letter.letter, 1)].diversity)


def test_the_baseline_of_the_checkout_is_shown(demo: Params) -> None:
    results = ROOT / "results/official"
    asked = find_model_to_ask(demo, "smollm2", None)
    (letter,) = baseline_summary(demo, asked, "I", results)
    assert (letter.team, letter.letter, letter.trials) == ("zero-shot", "I", 3)
    (letter,) = baseline_summary(demo, demo.models["qwen-coder-1b5"], "I", results)
    rows = official_rows("zero-shot", "I")
    assert letter.score == pytest.approx(sum(float(row.stability * row.similarity) for row in rows) / 3)
    assert baseline_summary(demo, Model(backend="ollama", name="m"), "I", results) == []
    assert baseline_summary(default_params(), asked, "I") == []


def test_a_second_try_asks_for_nothing_and_other_letters_keep_the_earlier_ones(demo: Params, tmp_path: Path) -> None:
    first = try_recorded(demo, "qwen-coder-1b5", tmp_path, "I")
    before = {name: content for name, content in all_files(tmp_path).items() if "/I" in name}
    assert any(name.startswith("images/") for name in before)
    assert new(try_recorded(demo, "qwen-coder-1b5", tmp_path, "L")) == new(first) == [True] * 3
    assert {name: content for name, content in all_files(tmp_path).items() if "/I" in name} == before
    again = try_recorded(demo, "qwen-coder-1b5", tmp_path, "I")
    assert (scores(again), new(again)) == (scores(first), [False] * 3)
    for vectors in ("softmax", "cls"):
        assert summary(TEAM, again, vectors)[0].diversity
    fewer = try_recorded(demo, "qwen-coder-1b5", tmp_path, "I", 1)
    assert (summary(TEAM, fewer, "softmax")[0].diversity, new(fewer)) == (None, [False])
    assert new(try_recorded(demo, "qwen-coder-1b5", tmp_path, "I")) == [False] * 3, "the replies were kept"


def test_a_zero_has_its_reason(demo: Params, tmp_path: Path) -> None:
    for trial in try_recorded(demo, "smollm2-135m", tmp_path):
        assert (trial.level.score, trial.picture) == (0, None)
        assert f"failed in {trial.level.failed_stage}: {trial.level.reason}" in trial_text(trial)
        assert str(trial.response) in trial_text(trial)


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
            Try(params, submission, classifier(), Path(folder), StatusLine(), json=True).do_trials(backend)
        do_trials(params, "m-1", [TeamTrials(submission, backend, Path("raw"))], lambda *_: None)
        assert len(server.asked) == 1


def all_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_pcgeval_did_not_make_is_refused_and_stays_as_it_is(demo: Params, tmp_path: Path) -> None:
    for name in ("levels/mine.xml", "raw/notes.txt", "printed/I.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("mine")
    before = all_files(tmp_path)
    with pytest.raises(OutputFolderError, match="already exists"):
        try_recorded(demo, "qwen-coder-0b5", tmp_path)
    assert all_files(tmp_path) == before


def test_files_of_others_in_the_folder_stay_and_another_models_try_is_refused(demo: Params, tmp_path: Path) -> None:
    try_recorded(demo, "qwen-coder-0b5", tmp_path, "I", 1)
    notes = [tmp_path / stage / "notes.txt" for stage in ("raw", "raw/I", "levels", "images", "printed", "unfinished")]
    for path in notes:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("mine")
    try_recorded(demo, "qwen-coder-0b5", tmp_path, "IL", 1)
    assert [path.read_text() for path in notes] == ["mine"] * len(notes)
    with pytest.raises(OutputFolderError, match="holds one-example"):
        try_recorded(demo, "qwen-coder-1b5", tmp_path, "I", 1)


def test_a_try_killed_before_it_wrote_its_first_file_can_be_repeated(demo: Params, tmp_path: Path) -> None:
    with lock_folder(tmp_path, tmp_path / LOCK), pytest.raises(FolderBusyError):
        try_recorded(demo, "qwen-coder-0b5", tmp_path, "I", 1)
    assert list(all_files(tmp_path)) == [LOCK]
    assert new(try_recorded(demo, "qwen-coder-0b5", tmp_path, "I", 1)) == [True]


@pytest.mark.parametrize(("letters", "trials"), [("", 2), ("1", 2), ("i", 2), ("II", 2), ("I", 0)])
def test_letters_and_trials_that_cannot_be_meant(demo: Params, letters: str, trials: int) -> None:
    with pytest.raises(SettingsError, match=r"letters|trials"):
        params_for_try(demo, demo.models["qwen-coder-1b5"], letters, trials)


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


def test_a_model_is_known_by_the_beginning_of_its_name(demo: Params) -> None:
    for params in (demo, default_params()):  # the same request, so the same reply, in a competition and outside of one
        model = find_model_to_ask(params, "smollm2", None)
        assert (model.backend, model.name) == ("llamacpp", "smollm2:135m-instruct-q4_1")
        assert model.options == demo.models["smollm2-135m"].options
        assert params.competition.seed == demo.competition.seed
        assert find_model_to_ask(params, "SmolLM2:135M-instruct-q4_1", None) == model
        assert find_model_to_ask(params, "qwen2.5-coder:1.5b", None).name == "qwen2.5-coder:1.5b-instruct-q4_K_M"
        with pytest.raises(SettingsError, match=r"qwen2.5-coder:0.5b.* or qwen2.5-coder:1.5b"):
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
    for addresses in ((None, "http://me:secret@127.0.0.1/v1"), ("http://me:secret@127.0.0.1", None)):
        with pytest.raises(SettingsError, match="password"):
            find_model_to_ask(default_params(), "m", *addresses)


def test_without_a_competition_the_default_params_hold() -> None:
    params = default_params()
    assert (params.limits.tokens, params.limits.seconds, params.competition.trials) == (25_000, 500, 10)
    assert list(params_for_try(params, find_model_to_ask(params, "a/b:c", None), "I", 1).models) == ["a-b-c"]
