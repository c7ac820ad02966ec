"""`pcgeval try` as a participant runs it, with a server of this machine: the competition in small."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from handed_in_for_tests import PROMPT_FILES, README, write_folder, write_zip
from lxml import html
from model_servers import SlowOllama, wait_until
from params_for_tests import contents

from pcgeval.cli.main import main
from pcgeval.cli.models import SettingsError, default_params, find_model_to_ask
from pcgeval.core.console import EXIT_INTERRUPTED
from pcgeval.formats.layout import OFFICIAL_RESULTS, SUBMISSIONS, recording_file
from pcgeval.formats.params import load_params
from pcgeval.formats.results import TrialRow, read_csv
from pcgeval.llm.call_log import read_recording
from pcgeval.llm.protocol import ChatRequest, Message

ROOT = Path(__file__).parents[2]
DEMO = load_params(ROOT / "params.yaml")
OUT = Path("rehearsals/mine/m-1")
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
    print("end")
"""


def write_program(before="pass", after="pass"):
    """Hand in a program in place of the prompt; return its files."""
    Path("mine/prompt.txt").unlink(missing_ok=True)
    files = {"README.md": README, "main.py": PROGRAM.format(before=before, after=after)}
    write_folder(Path("mine"), files)
    return files


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of a participant with the submission `mine` in the working directory."""
    monkeypatch.chdir(tmp_path)
    write_folder(Path("mine"), PROMPT_FILES)
    with SlowOllama(0) as running:
        yield running


def words(server, path="mine", letters="I", trials=1):
    at_server = ["--model", "m:1", "--host", server.address]
    return ["try", path, *at_server, "--letters", letters, "--trials", str(trials)]


@pytest.fixture
def tries(server, capsys):
    """Run the command to an exit code; return what it printed, and what it said."""

    def run(*options, code=0, **values):
        capsys.readouterr()
        assert main([*words(server, **values), *options]) == code
        return capsys.readouterr()

    return run


def test_the_scores_are_those_of_the_competition(server, capsys):
    team, name = "zero-shot", "qwen-coder-1b5"
    model = DEMO.models[name]
    calls = read_recording(ROOT / recording_file(name, team))
    replies = {call.key: call.reply.text for call in calls if call.reply}

    def replayed(asked, _):
        messages = tuple(Message(**message) for message in asked["messages"])
        return [replies[ChatRequest(model.name, model.digest, messages, asked["options"]).key]]

    server.words = replayed
    rows = [row for row in read_csv(TrialRow, ROOT / OFFICIAL_RESULTS / name / "trial_scores.csv") if row.team == team]
    letter = max(rows, key=lambda row: row.score).letter
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    Path("data").mkdir(exist_ok=True)
    Path("data/classifier").symlink_to(ROOT / "data/classifier")
    asked = {"backend": "ollama", "name": "m:1", "host": server.address, "options": model.options}
    Path("params.yaml").write_text(yaml.safe_dump({**params, "models": {"m": asked}}))
    options = ["--model", "m", "--letters", letter, "--trials", str(DEMO.competition.trials), "--json"]
    assert main(["try", str(ROOT / SUBMISSIONS / team), *options]) == 0
    values = json.loads(capsys.readouterr().out)
    (means,) = values["letters"]
    official = sorted((row for row in rows if row.letter == letter), key=lambda row: row.trial)
    for trial, row in zip(values["trials"], official, strict=True):
        assert trial["stability"] == pytest.approx(float(row.stability))  # the official script rounds to 20 digits
        assert (trial["similarity"], means["diversity"]) == (float(row.similarity), float(row.diversity))
    assert means["score"] > 0


def test_each_trial_is_printed_and_another_try_keeps_it(server, tries):
    out, err = tries(trials=2)
    assert [line.partition(":")[0] for line in out.splitlines() if " x similarity " in line] == ["I1", "I2"]
    assert "asking for I1, call 1 (0 of 2 trials done)" in err
    write_folder(OUT, {"raw/I/notes.txt": "mine"})
    before = contents(OUT)
    assert before.keys() > {"raw/I/mine_I_2.txt", "intermediate/I/mine_I_2.txt", "levels/I/mine_I_2.xml"}
    tries(letters="L")
    assert before.items() <= contents(OUT).items()
    values = json.loads(tries("--json", trials=2)[0])
    assert len(server.asked) == 3, "nothing is asked twice"
    assert [(trial["trial"], trial["calls"]) for trial in values["trials"]] == [(1, 1), (2, 1)]
    assert (values["letters"][0]["trials"], values["letters"][0]["failed"]) == (2, 0)
    server.words = lambda *_: ["I would rather not."]
    out, _ = tries(letters="T", code=1)  # all trials failed
    assert "T1: 0, failed in extract: the response holds no drop_block call and no fenced block" in out
    assert f"{OUT}/raw/T/mine_T_1.txt" in out
    assert "done before" in tries(letters="IT")[0]


FALLING = "```\ndrop_block('b31', 5)\ndrop_block('b13', 5)\ndrop_block('b31', 6)\ndrop_block('b12', 7)\n```"


def test_a_trial_shows_what_level_shows_and_many_trials_a_line_of_it_each(server, tries, capsys):
    server.words = lambda *_: [FALLING]
    out, err = tries(letters="t")
    Path("reply.txt").write_text(FALLING)
    assert main(["level", "reply.txt", "--letter", "T"]) == 0
    level = capsys.readouterr()
    drawn = "\n".join(level.out.splitlines()[1:-1])
    for words in ("before", "█", "2 of 3 blocks stayed:\n   3 drop_block('b31', 6)  ", "likeliest letters: "):
        assert words in drawn
    assert drawn in out
    ignored = "line 5 is ignored: `drop_block('b12', 7)` has the type 'b12'"
    assert ignored in out
    assert ignored in level.err
    assert "no two levels differ" not in err
    out, err = tries(letters="FHILT", trials=2)
    assert "before  " not in out
    assert out.count("  1 of 3 blocks fell (first 3 drop_block('b31', 6)  ") == 10
    assert "FHILT: no two levels differ, so the diversity is 0" in err
    assert "before  " in tries("--drawings", letters="FHILT", trials=2)[0]
    assert "before  " not in tries("--no-drawings", letters="t")[0]
    answers = iter([FALLING, "no level"])
    server.words = lambda *_: [next(answers)]
    assert "E: only one trial has a level, so the diversity is 0" in tries(letters="E", trials=2)[1]


def test_the_page_of_a_try_plays_each_level_and_is_safe(server, tries):
    server.words = lambda asked, _: ["<script>alert(1)</script>" if "I" in asked["messages"][0]["content"] else FALLING]
    tries("--html", "page.html", letters="IT")
    page = html.fromstring(Path("page.html").read_bytes())
    failed, level = page.xpath("//tr[@class='trial']")
    assert (failed.get("id"), failed.get("data-motion"), failed.xpath(".//svg")) == ("I1", None, [])
    assert "no fence" in failed.text_content()
    assert "<script>alert(1)</script>" in failed.text_content()
    assert level.get("data-motion")
    assert level.xpath(".//a[@class='level frame']/@href") == ["#T1"]
    assert "3 drop_block('b31', 6)" in level.text_content()
    assert not page.xpath("//*[@src] | //link")


@pytest.mark.needs_sandbox
def test_the_output_of_a_program_is_kept_and_named_where_it_fails(server, tries):
    printed = OUT / "printed/I/mine_I_1.txt"
    server.seconds = 0.3  # what is printed before the call is read before what follows it, on the other pipe
    files = write_program("print('begun', end='')", "print('\\033[2J' + reply[:6] + '\\u202e', file=sys.stderr)")
    write_zip(Path("mine.zip"), {f"inner/{name}": text for name, text in files.items()})
    for path in ("mine.zip", "mine"):
        tries(path=path)
        assert printed.read_text() == "begun\ufffd[2Janswer\ufffd\nend\n"
    assert len(server.asked) == 1, "the same submission"
    write_program("print('line\\r' * 99 + 'x' * 999); import pcgeval")
    out, _ = tries(code=1)
    assert "(ModuleNotFoundError: No module named 'pcgeval'" in out
    assert str(printed) in out
    assert "Traceback (most recent call last):" in printed.read_text()


@pytest.mark.needs_sandbox
def test_the_files_are_those_that_submit_takes_and_a_try_adds_none(tries, monkeypatch):
    write_program("open('.prompt')")
    Path("mine/.prompt").write_text("Build it.")
    out, err = tries(code=1)
    assert "No such file or directory: '.prompt'" in out
    assert ".prompt: is left out" in err
    before = contents(Path("mine"))
    monkeypatch.chdir("mine")
    assert "rehearsals/mine/m-1: lies in the submission" in tries(path=".", code=2)[1]
    assert "page.html: lies in the submission" in tries("--out", "../out", "--html", "page.html", path=".", code=2)[1]
    tries("--out", "../out", path=".", code=1)
    assert "rehearsals" not in contents(Path())
    monkeypatch.chdir("..")
    assert contents(Path("mine")).keys() - before.keys() == {
        name for name in contents(Path("mine")) if ".pcgeval" in name
    }


def test_an_invalid_submission_or_option_asks_nothing(server, tries):
    for letters, trials, word in (("", 2, "letters"), ("1", 2, "letters"), ("iI", 2, "letters"), ("I", 0, "trials")):
        assert word in tries(letters=letters, trials=trials, code=2)[1]
    assert "--host and --base-url" in tries("--base-url", "http://127.0.0.1:9", code=2)[1]
    assert "neither a folder nor a zip file" in tries(path="mine/README.md", code=2)[1]
    write_folder(Path("faulty"), {**write_program(), "requirements.txt": "./x.whl"})
    assert "requirements.txt:1" in tries(path="faulty", code=1)[1]
    assert not server.asked


def test_what_is_missing_here_is_named_before_the_first_call(server, tries, monkeypatch, capsys):
    write_program()
    params = (ROOT / "params.yaml").read_text()
    Path("params.yaml").write_text(params.replace("model: data/classifier", "model: nowhere/classifier"))
    assert "nowhere/classifier" in tries(code=2)[1]
    Path("params.yaml").unlink()
    monkeypatch.setenv("OLLAMA_HOST", server.address)
    assert main(["try", "mine", "--model", "nonesuch"]) == 2
    assert "model nonesuch: is none of `pcgeval models list`" in capsys.readouterr().err
    monkeypatch.setenv("PCGEVAL_NO_SANDBOX", "1")
    assert "The sandbox is switched off" in tries(code=2)[1]
    assert not server.asked


@pytest.mark.needs_sandbox
def test_ctrl_c_keeps_what_is_done_and_the_next_try_pays_for_nothing_twice(server, tries):
    write_program()
    server.status = lambda letter: 0 if letter == "L" else 200  # L1 gets no answer
    command = [sys.executable, "-m", "pcgeval", *words(server, letters="ILT")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("I1: ")
        wait_until(lambda: len(server.asked) >= 2, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    assert err.splitlines()[-1].startswith("stopped; what was finished is kept")
    assert "Traceback" not in err
    server.status = lambda _: 200
    assert "done before" in tries(letters="ILT")[0].partition("\n")[0]
    paid, unanswered, asked_again, new = server.asked
    assert asked_again == unanswered
    assert paid != new


CODER, SMALL = "qwen2.5-coder:1.5b-instruct-q4_K_M", "smollm2:135m-instruct-q4_1"
HOST, URL = "127.0.0.1:1", "http://127.0.0.1:1/v1"


def test_a_model_is_asked_for_real_by_any_name_that_means_one():
    params = default_params()
    assert params.competition.seed == DEMO.competition.seed, "the same replies everywhere"
    for name, host, base_url, backend, asked in (
        ("qwen-coder-1b5", None, None, "llamacpp", CODER),
        ("SmolLM2", None, None, "llamacpp", SMALL),
        ("smollm2", HOST, None, "ollama", "smollm2"),  # as the server calls it
        ("qwen-coder-1b5", HOST, None, "ollama", CODER),
        ("qwen-coder-1b5", None, URL, "openai", CODER),
        ("llama3:8b", None, None, "ollama", "llama3:8b"),
    ):
        model = find_model_to_ask(params, name, host, base_url)
        assert (model.backend, model.name, model.host, model.base_url) == (backend, asked, host, base_url)
        known = next((known for known in DEMO.models.values() if known.name == asked), None)
        assert ("num_ctx" in model.options) == (known is not None and base_url is None)
        assert model.digest == (known.digest if known and backend == "llamacpp" else None)
    with pytest.raises(SettingsError, match=r"qwen2.5-coder:0.5b.* or qwen2.5-coder:1.5b"):
        find_model_to_ask(params, "qwen2.5-coder", None)
