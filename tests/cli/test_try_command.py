"""`pcgeval try` as a participant runs it: in an empty folder, with a server of this machine."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from handed_in_for_tests import PROMPT_FILES, README, write_folder, write_zip
from slow_ollama import SlowOllama
from waiting import wait_until

from pcgeval.cli.main import main
from pcgeval.core.console import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, EXIT_INTERRUPTED
from pcgeval.sandbox.process import ResourceLimits

ROOT = Path(__file__).parents[2]
PRINTED = Path("rehearsals/mine/m-1/printed/I/mine_I_1.txt")
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


def words(server: SlowOllama, folder: Path | str = "mine", letters: str = "I", trials: int = 1) -> list[str]:
    options = ["--model", "m:1", "--host", server.address, "--letters", letters, "--trials", str(trials)]
    return ["try", str(folder), *options]


def test_what_a_participant_sees(here: Path, server: SlowOllama, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(here / "mine", PROMPT_FILES)
    assert main(words(server, trials=2)) == 0
    out, err = capsys.readouterr()
    for line in ("checking mine", "loading the classifier", "looking for m:1", "asking I1 (0 of 2 trials done)"):
        assert f"{line}\n" in err
    for word in ("I1: 0.", "x similarity", "likeliest letters: ", "before", "images/I/mine_I_2.png", "score x divers"):
        assert word in out
    assert "rehearsals/mine/m-1" in err
    assert len(server.asked) == 2
    assert main([*words(server, trials=2), "--json"]) == 0
    assert len(server.asked) == 2, "nothing is asked twice"
    values = json.loads(capsys.readouterr().out)
    assert [trial["trial"] for trial in values["trials"]] == [1, 2]
    assert (values["letters"][0]["team"], values["baseline"]) == ("mine", [])
    seconds = [trial["seconds"] for trial in values["trials"]]
    assert values["full_run"] == {"trials": 260, "seconds": pytest.approx(130 * sum(seconds), abs=0.3)}
    assert (here / "rehearsals/mine/m-1/levels/I/mine_I_1.xml").is_file()


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


NO_MAIN = program()["main.py"].partition("if __")[0]


@pytest.mark.parametrize(
    ("files", "path", "word"),
    [
        ({"README.md": README, "main.py": "from llms4pcg.competition import TrialLoop\nx = ("}, "mine", "main.py:2"),
        ({"README.md": README, "main.py": NO_MAIN}, "mine", "nothing starts it"),
        ({"README.md": README, "Prompt.txt": "<OBJECT>"}, "mine", "rename it to prompt.txt"),
        ({**program(), "requirements.txt": "./x.whl"}, "mine", "requirements.txt:1"),
        ({"prompt.txt": "Build <OBJECT>"}, "mine", "README.md"),
        ({"prompt.txt": "Build é <OBJECT>"}, "mine/prompt.txt", "U+00E9"),
    ],
)
def test_what_validate_refuses_asks_nothing(
    here: Path, files: dict[str, str], path: str, word: str, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", files)
    assert main(words(server, path)) == EXIT_CHECK_FAILED
    assert server.asked == []
    err = capsys.readouterr().err
    assert word in err
    assert "nothing was asked" in err


@pytest.mark.parametrize("path", ["nothing", "mine/README.md"])
def test_what_is_no_submission_is_named(
    here: Path, path: str, server: SlowOllama, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", PROMPT_FILES)
    assert main(words(server, path)) == EXIT_BAD_INPUT
    assert "Name a submission's folder" in capsys.readouterr().err


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
    assert main(words(server)) == EXIT_BAD_INPUT
    assert "classifier" in capsys.readouterr().err
    (here / "params.yaml").unlink()
    monkeypatch.setenv("PCGEVAL_NO_SANDBOX", "1")
    assert main(words(server)) == EXIT_BAD_INPUT
    assert "The sandbox is switched off" in capsys.readouterr().err
    assert server.asked == []


def test_an_unknown_model_names_every_way_to_name_one(
    here: Path, server: SlowOllama, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(here / "mine", PROMPT_FILES)
    monkeypatch.setenv("OLLAMA_HOST", server.address)
    assert main(["try", "mine", "--model", "llama9"]) == EXIT_BAD_INPUT
    err = capsys.readouterr().err
    for word in ("smollm2:135m", "ollama pull llama9", "pcgeval models fetch", "--host", "--base-url"):
        assert word in err


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
