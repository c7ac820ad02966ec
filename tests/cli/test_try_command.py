"""`pcgeval try` as a participant runs it, with a server of this machine: the competition in small."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import yaml
from competition_folder import PROMPT, competition_folder
from handed_in_for_tests import PROMPT_FILES, README, contents, write_folder, write_zip
from slow_ollama import DIGEST, SlowOllama
from waiting import wait_until

from pcgeval.cli.main import main
from pcgeval.cli.settings import SettingsError, default_params, find_model_to_ask
from pcgeval.cli.try_submission import LOCK
from pcgeval.core.console import EXIT_INTERRUPTED
from pcgeval.core.layout import OFFICIAL_RESULTS, SUBMISSIONS, recording_file
from pcgeval.core.locks import lock_folder
from pcgeval.core.params import load_params
from pcgeval.core.stage_files import TrialRow, read_csv
from pcgeval.llm.call_log import read_recording
from pcgeval.llm.protocol import ChatRequest, Message
from pcgeval.sandbox.process import ResourceLimits
from pcgeval.submissions.load import Prompt, load_submission

ROOT = Path(__file__).parents[2]
DEMO = load_params(ROOT / "params.yaml")
OUT = Path("rehearsals/mine/m-1")
PRINTED = OUT / "printed/I/mine_I_1.txt"
PROGRAM = """\
import sys
from llms4pcg.competition import TrialLoop, chat_with_llm, run_evaluation

class Mine(TrialLoop):
    @staticmethod
    def run(ctx, letter):
        {before}
        reply = chat_with_llm(ctx, [{{"role": "user", "content": letter}}])[0]
        {after}
        return reply

if __name__ == "__main__":
    run_evaluation("mine", Mine)
    {end}
"""
NO_MAIN = PROGRAM.partition("if __")[0].format(before="pass", after="pass")


def program(before: str = "pass", after: str = "pass", end: str = "pass") -> dict[str, str]:
    return {"README.md": README, "main.py": PROGRAM.format(before=before, after=after, end=end)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server() -> Iterator[SlowOllama]:
    with SlowOllama(0) as running:
        yield running


def words(server: SlowOllama, path: Path | str = "mine", letters: str = "I", trials: int = 1) -> list[str]:
    options = ["--model", "m:1", "--host", server.address, "--letters", letters, "--trials", str(trials)]
    return ["try", str(path), *options]


class Replaying(SlowOllama):
    """Answers as a model of the demo did, whose options it is asked with; it looks replies up by their requests."""

    def __init__(self, model: str, team: str) -> None:
        super().__init__(0)
        self.model = DEMO.models[model]
        self.replies = {
            call.key: call.reply.text for call in read_recording(ROOT / recording_file(model, team)) if call.reply
        }

    def words(self, asked: dict[str, Any], _: str) -> list[str]:
        messages = tuple(Message(**message) for message in asked["messages"])
        request = ChatRequest(self.model.name, self.model.digest or "", messages, asked["options"])
        return [self.replies[request.key]]


def test_the_scores_and_the_baseline_are_those_of_the_competition(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [team for team in DEMO.teams if isinstance(load_submission(ROOT / SUBMISSIONS / team).work, Prompt)]
    team = next(team for team in prompts if team != DEMO.scoring.baseline)
    model = next(iter(DEMO.models))
    table = read_csv(TrialRow, ROOT / OFFICIAL_RESULTS / model / "trial_scores.csv")
    best = max((row for row in table if row.team == team), key=lambda row: row.score).letter
    letters = {best, "I" if best != "I" else "L"}
    official = {(row.letter, row.trial): row for row in table if row.team == team and row.letter in letters}
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["similarity"]["model"] = str(ROOT / "data/classifier")
    (here / OFFICIAL_RESULTS).mkdir(parents=True)
    (here / OFFICIAL_RESULTS / "m").symlink_to(ROOT / OFFICIAL_RESULTS / model)
    options = DEMO.models[model].options
    with Replaying(model, team) as server:
        asked = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": server.address, "options": options}
        Path("params.yaml").write_text(yaml.safe_dump({**params, "models": {"m": asked}}))
        command = ["try", str(ROOT / SUBMISSIONS / team), "--model", "m", "--letters", "".join(letters), "--json"]
        assert main([*command, "--trials", str(DEMO.competition.trials)]) == 0
        assert len(server.asked) == len(official)
        values = json.loads(capsys.readouterr().out)
        params["diversity"]["vectors"] = "cls"
        Path("params.yaml").write_text(yaml.safe_dump({**params, "models": {"m": asked}}))
        assert main([*command, "--trials", str(DEMO.competition.trials)]) == 0
        assert len(server.asked) == len(official), "nothing is asked twice"
    for trial in values["trials"]:
        row = official.pop((trial["letter"], trial["trial"]))
        assert trial["stability"] == pytest.approx(float(row.stability))  # the official script rounds to 20 digits
        assert trial["similarity"] == float(row.similarity)
    assert not official
    assert any(trial["score"] for trial in values["trials"])
    summaries = {entry["letter"]: entry for entry in values["letters"]}
    by_cls = {entry["letter"]: entry for entry in json.loads(capsys.readouterr().out)["letters"]}
    for row in table:
        if row.team == team and row.letter in letters:
            assert summaries[row.letter]["diversity"] == float(row.diversity)
    assert by_cls[best]["score"] == summaries[best]["score"]
    for entry in values["baseline"]:
        rows = [row for row in table if (row.team, row.letter) == (DEMO.scoring.baseline, entry["letter"])]
        assert (entry["team"], entry["trials"], entry["failed"]) == (DEMO.scoring.baseline, len(rows), None)
        assert entry["score"] == pytest.approx(sum(float(row.stability * row.similarity) for row in rows) / len(rows))
    assert {entry["letter"] for entry in values["baseline"]} == letters


def test_what_a_participant_sees_and_what_another_try_keeps(
    here: Path, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", PROMPT_FILES)
    assert main(words(server, trials=2)) == 0
    out, err = capsys.readouterr()
    for line in ("checking mine", "loading the classifier", "looking for m:1", "asking I1 (0 of 2 trials done)"):
        assert f"{line}\n" in err
    for word in ("I1: 0.", "x similarity", "likeliest letters: ", "before", "images/I/mine_I_2.png", "score x divers"):
        assert word in out
    assert str(OUT) in err
    before = contents(OUT)
    assert {f"{stage}/I/mine_I_2.{kind}" for stage, kind in (("raw", "txt"), ("levels", "xml"), ("images", "png"))} < {
        *before
    }
    assert main(words(server, letters="L")) == 0
    assert {name: content for name, content in contents(OUT).items() if name in before} == before
    assert main([*words(server, trials=2), "--json"]) == 0
    assert len(server.asked) == 3, "nothing is asked twice"
    values = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [trial["trial"] for trial in values["trials"]] == [1, 2]
    assert (values["letters"][0]["team"], values["baseline"]) == ("mine", [])
    seconds = [trial["seconds"] for trial in values["trials"]]
    assert values["full_run"] == {"trials": 260, "seconds": pytest.approx(130 * sum(seconds), abs=0.3)}
    assert main(words(server)) == 0
    assert "done before" in capsys.readouterr().out


def test_a_response_without_a_level_has_its_reason(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(here / "mine", PROMPT_FILES)
    with SlowOllama(0) as server:
        server.words = lambda *_: ["I would rather not."]  # type: ignore[method-assign]
        assert main(words(server)) == 0
    out = capsys.readouterr().out
    assert "I1: 0, failed in extract: no code" in out
    assert "| I would rather not." in out
    assert f"{OUT}/raw/I/mine_I_1.txt" in out
    assert not (OUT / "images").exists()


def test_a_try_and_the_competition_share_the_replies_of_the_models(
    here: Path, server: SlowOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    competition = competition_folder(here, server.address, PROMPT, letters="A", trials=2)
    monkeypatch.setenv("PCGEVAL_CACHE", str(here / "cache"))
    params = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump({**params, "similarity": {"model": str(ROOT / "data/classifier")}}))
    command = ["try", "data/submissions/alpha", "--model", "m", "--letters", "A"]
    for out in ("one", "other"):
        assert main([*command, "--trials", "1", "--out", out]) == 0
    assert len(server.asked) == 1
    competition.generate()
    assert len(set(server.asked)) == len(server.asked) == 2


def test_only_a_folder_of_the_same_team_and_model_is_written_into(
    here: Path, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", PROMPT_FILES)
    command = [*words(server), "--out", "out"]
    write_folder(here / "out", {"levels/mine.xml": "mine", "raw/notes.txt": "mine"})
    before = contents(here / "out")
    assert main(command) == 2
    assert "already exists" in capsys.readouterr().err
    assert contents(here / "out") == before
    assert not server.asked
    new = [*words(server), "--out", "new"]
    with lock_folder(here / "new", here / "new" / LOCK):
        assert main(new) == 2
    assert list(contents(here / "new")) == [LOCK]
    assert main(new) == 0, "a try that was killed before it wrote its first file can be repeated"
    notes = dict.fromkeys((f"{stage}/notes.txt" for stage in ("raw", "raw/I", "images", "unfinished")), b"mine")
    write_folder(here / "new", notes)
    assert main([*words(server, letters="IL"), "--out", "new"]) == 0
    assert contents(here / "new").items() >= notes.items()
    write_folder(here / "theirs", PROMPT_FILES)
    assert main([*words(server, "theirs"), "--out", "new"]) == 2
    assert "holds mine with m-1" in capsys.readouterr().err


@pytest.mark.needs_sandbox
def test_what_a_program_prints_is_kept_and_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prints = program(
        "print('begun', end='')", "print('\\033[2J' + reply[:6] + '\\u202e', file=sys.stderr)", "print('end')"
    )
    write_folder(here / "mine", prints)
    with SlowOllama(0.3) as server:  # what is printed before the call is read before what follows it, on the other pipe
        assert main(words(server)) == 0
        first = capsys.readouterr().out
        assert main(words(server)) == 0
    for out in (first, capsys.readouterr().out):
        assert "| begun\ufffd[2Janswer\ufffd" in out
        assert "| end" in out
        assert "\033" not in out
    assert PRINTED.read_text() == "begun\ufffd[2Janswer\ufffd\nend\n"


@pytest.mark.needs_sandbox
def test_a_program_that_prints_without_end_is_stopped_and_its_output_bounded(
    here: Path, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", program("while True: sys.stdout.write('\\x07spam\\r' * 10**5)"))
    assert main(words(server)) == 0
    assert server.asked == []
    out = capsys.readouterr().out
    assert "printed more than 64 MB" in out
    assert "[lines before these: " in out
    assert len(out) < 10_000
    assert "\x07" not in out
    assert "bytes left out]" in PRINTED.read_text()
    assert len(PRINTED.read_text()) < 2 * ResourceLimits().kept_output_bytes + 100


@pytest.mark.needs_sandbox
def test_a_program_that_fails_shows_its_last_words_and_has_none_of_our_packages(
    here: Path, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", program("print('before'); import pcgeval"))
    assert main(words(server)) == 0
    assert server.asked == []
    out = capsys.readouterr().out
    assert "I1: 0, failed in generate: ModuleNotFoundError: No module named 'pcgeval'" in out
    assert "| before" in out
    assert "| Traceback (most recent call last):" in out


@pytest.mark.parametrize(
    ("files", "path", "code", "word"),
    [
        ({"README.md": README, "main.py": "from llms4pcg.competition import X\nx = ("}, "mine", 1, "main.py:2"),
        ({"README.md": README, "main.py": NO_MAIN}, "mine", 1, "nothing starts it"),
        ({"README.md": README, "Prompt.txt": "<OBJECT>"}, "mine", 1, "rename it to prompt.txt"),
        ({**program(), "requirements.txt": "./x.whl"}, "mine", 1, "requirements.txt:1"),
        ({"prompt.txt": "Build <OBJECT>"}, "mine", 1, "README.md"),
        ({"prompt.txt": "Build é <OBJECT>"}, "mine/prompt.txt", 1, "U+00E9"),
        (PROMPT_FILES, "nothing", 2, "Name a submission's folder"),
        (PROMPT_FILES, "mine/README.md", 2, "Name a submission's folder"),
    ],
)
def test_what_is_no_valid_submission_asks_nothing(
    here: Path,
    files: dict[str, str],
    path: str,
    code: int,
    word: str,
    server: SlowOllama,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_folder(here / "mine", files)
    assert main(words(server, path)) == code
    assert server.asked == []
    assert word in capsys.readouterr().err


@pytest.mark.parametrize(("letters", "trials"), [("", 2), ("1", 2), ("i", 2), ("II", 2), ("I", 0), ("I", 1001)])
def test_letters_and_trials_that_cannot_be_meant(
    here: Path, letters: str, trials: int, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", PROMPT_FILES)
    assert main(words(server, letters=letters, trials=trials)) == 2
    assert ("letters" if trials == 2 else "trials") in capsys.readouterr().err
    assert server.asked == []


@pytest.mark.needs_sandbox
def test_a_zip_a_folder_and_a_file_are_one_submission(
    here: Path, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    files = program("print('ran')")
    write_zip(here / "mine.zip", {f"inner/{name}": text for name, text in files.items()})
    write_folder(here / "mine", files)
    for path in ("mine.zip", "mine", "mine/main.py"):
        assert main(words(server, path)) == 0
        assert len(server.asked) == 1, "the same submission"
    assert "| ran" in capsys.readouterr().out


@pytest.mark.needs_sandbox
def test_what_is_missing_here_is_named_before_the_first_call(
    here: Path, server: SlowOllama, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", program())
    params = (ROOT / "params.yaml").read_text()
    (here / "params.yaml").write_text(params.replace("model: data/classifier", "model: nowhere/classifier"))
    assert main(words(server)) == 2
    assert "classifier" in capsys.readouterr().err
    (here / "params.yaml").unlink()
    monkeypatch.setenv("PCGEVAL_NO_SANDBOX", "1")
    assert main(words(server)) == 2
    assert "The sandbox is switched off" in capsys.readouterr().err
    monkeypatch.setenv("OLLAMA_HOST", server.address)
    assert main(["try", "mine/main.py", "--model", "m:1", "--host", "a", "--base-url", "http://b"]) == 2
    write_folder(here / "mine", {"prompt.txt": "Build <OBJECT>", "main.py": ""})
    assert main(["try", "mine/prompt.txt", "--model", "llama9"]) == 2
    err = capsys.readouterr().err
    for word in ("smollm2:135m", "ollama pull llama9", "pcgeval models fetch", "--host", "--base-url"):
        assert word in err
    assert server.asked == []


@pytest.mark.needs_sandbox
def test_ctrl_c_keeps_what_is_done_and_the_next_try_pays_for_nothing_twice(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", program(end="import time; time.sleep(600)"))
    with SlowOllama(0, status=lambda letter: 0 if letter == "L" else 200) as server:  # L1 gets no answer
        command = [sys.executable, "-m", "pcgeval", *words(server, letters="ILT")]
        with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("I1: ")
            wait_until(lambda: len(server.asked) >= 2, process)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert process.returncode == EXIT_INTERRUPTED
        assert err.splitlines()[-1].startswith("stopped; what was finished is kept")
        assert "Traceback" not in err
        paid, unanswered = server.asked
        server.status = lambda _: 200
        assert main(words(server, letters="ILT")) == 0
        assert "done before" in capsys.readouterr().out.partition("\n")[0]
        assert paid not in server.asked[2:]
        assert server.asked[2] == unanswered
        assert len(server.asked) == 4


CODER, SMALL = "qwen2.5-coder:1.5b-instruct-q4_K_M", "smollm2:135m-instruct-q4_1"
URL = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("params", [DEMO, default_params()], ids=["competition", "elsewhere"])
@pytest.mark.parametrize(
    ("name", "host", "base_url", "backend", "asked"),
    [
        pytest.param("qwen-coder-1b5", None, None, "llamacpp", CODER, id="a-replayed-model-by-its-key"),
        pytest.param("SmolLM2:135M-instruct-q4_1", None, None, "llamacpp", SMALL, id="by-its-name"),
        pytest.param("smollm2", None, None, "llamacpp", SMALL, id="by-the-beginning-of-its-name"),
        pytest.param("smollm2", "127.0.0.1:1", None, "ollama", "smollm2", id="as-a-server-calls-it"),
        pytest.param("qwen-coder-1b5", "127.0.0.1:1", None, "ollama", CODER, id="on-a-server"),
        pytest.param("qwen-coder-1b5", None, URL, "openai", CODER, id="at-an-endpoint"),
        pytest.param("llama3:8b", None, None, "ollama", "llama3:8b", id="unknown-here"),
    ],
)
def test_a_model_is_asked_for_real(params, name, host, base_url, backend, asked) -> None:
    model = find_model_to_ask(params, name, host, base_url)
    assert (model.backend, model.name, model.host, model.base_url) == (backend, asked, host, base_url)
    known = next((known for known in DEMO.models.values() if known.name == asked), None)
    options = known.options if known else {"num_predict": 1000}
    assert model.options == {name: value for name, value in options.items() if (backend, name) != ("openai", "num_ctx")}
    assert model.digest == (known.digest if known and backend == "llamacpp" else None)
    assert params.competition.seed == DEMO.competition.seed, "the same replies everywhere"


@pytest.mark.parametrize(
    ("name", "host", "base_url", "words"),
    [
        ("qwen2.5-coder", None, None, r"qwen2.5-coder:0.5b.* or qwen2.5-coder:1.5b"),
        ("m", None, "http://me:secret@127.0.0.1/v1", "password"),
        ("m", "http://me:secret@127.0.0.1", None, "password"),
    ],
)
def test_an_ambiguous_name_and_a_password_are_refused(name, host, base_url, words) -> None:
    with pytest.raises(SettingsError, match=words):
        find_model_to_ask(default_params(), name, host, base_url)
