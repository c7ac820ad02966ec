"""The stage generate: one response a trial, the teams in turn, nothing asked twice, nothing stale kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from handed_in_for_tests import package_index, write_folder, write_wheel
from model_servers import DIGEST, SlowOllama
from params_for_tests import file_states
from workspace import PROGRAM, PROMPT, STAGE, CompetitionFolder, competition_folder

from pcgeval.core.files import derived_seed, write_text
from pcgeval.core.locks import lock_folder
from pcgeval.formats.params import load_params
from pcgeval.generation.generate import generate_stage
from pcgeval.llm import blame
from pcgeval.sandbox.sandbox import Sandbox, SandboxError

NO_SANDBOX = {"PCGEVAL_NO_SANDBOX": "1"}
TRUST = {**NO_SANDBOX, "PCGEVAL_TRUST_PROGRAMS": "1"}


@pytest.fixture
def asked() -> list[str]:
    """The last message of each request, in the order in which they came."""
    return []


@pytest.fixture
def server(asked: list[str]) -> Iterator[SlowOllama]:
    with SlowOllama(0.002, status=lambda text: 200 if text == blame.TEXT else asked.append(text) or 200) as served:
        yield served


@pytest.fixture
def prompt(tmp_path: Path, server: SlowOllama) -> CompetitionFolder:
    """A competition of the prompt `Build`, two letters and two trials."""
    competition = competition_folder(tmp_path, server.address, PROMPT, letters="AB", trials=2)
    competition.change_model(concurrency=1)
    return competition


@pytest.fixture
def three_teams(prompt: CompetitionFolder) -> CompetitionFolder:
    """The same with the prompts `Build`, `Stack` and `Pile`, which are asked one after the other."""
    prompt.add_team("beta", {"prompt.txt": "Stack the letter <OBJECT>."})
    prompt.add_team("gamma", {"prompt.txt": "Pile up the letter <OBJECT>."})
    return prompt


def test_a_trial_is_asked_once_with_its_own_seed_and_again_when_what_it_is_made_from_changes(prompt, server, asked):
    prompt.generate()
    assert asked == ["Build the letter A."] * 2 + ["Build the letter B."] * 2
    before, first = prompt.outputs(), prompt.records()[0]
    assert (first.model, first.digest, first.seed, first.tokens) == ("m:1", DIGEST, derived_seed(6280, "A", 1), 16)
    assert len({record.seed for record in prompt.records()}) == 4
    assert before["m/alpha/A/alpha_A_1.txt"].decode().startswith(f"answer {first.exchanges[0].key[:12]}")

    def change(text: str = PROMPT["prompt.txt"], seed: int = 6280, digest: str = DIGEST, temperature: float = 0.5):
        write_text(prompt.folder / "data/submissions/alpha/prompt.txt", text)  # only another one
        prompt.change_params("competition", seed=seed)
        prompt.change_model(digest=digest, options={"temperature": temperature}, concurrency=3)
        server.digest = digest
        asked.clear()
        prompt.generate()

    values: dict[str, Any] = {}
    for name, value in {"text": "Draw <OBJECT>", "seed": 1, "digest": "cd" * 32, "temperature": 0.4}.items():
        values[name] = value  # one after the other
        change(**values)
        assert len(asked) == 4
    (prompt.folder / "data/raw/m/alpha/A/alpha_A_1.txt").write_text("a better answer, written by hand")
    (prompt.folder / "data/raw/m/alpha/B/alpha_B_2.json").write_text('{"fingerprint": ')
    change()
    assert (prompt.outputs(), asked) == (before, [])
    server.digest = "cd" * 32
    (prompt.folder / "data/raw/m/alpha/B/alpha_B_2.json").unlink()
    code, output = prompt.run_and_fail(*STAGE)
    assert (code, DIGEST in output, server.digest in output) == (2, True, True)


def test_a_submission_that_changes_while_the_stage_begins_counts_as_it_is_then(prompt, asked, monkeypatch):
    @contextmanager
    def lock_and_replace(*arguments: Path) -> Iterator[None]:
        with lock_folder(*arguments):
            (prompt.folder / "data/submissions/alpha/prompt.txt").write_text("Draw <OBJECT>")
            yield

    monkeypatch.setattr("pcgeval.generation.generate.lock_folder", lock_and_replace)
    generate_stage(load_params(prompt.folder / "params.yaml"), prompt.folder)
    assert asked == ["Draw A"] * 2 + ["Draw B"] * 2


def test_other_limits_decide_anew_about_the_same_replies(prompt, server):
    server.seconds = 0.3
    prompt.generate()
    before = len(server.asked)
    for limits, sentence in (
        ({"tokens": 15}, "used 16 tokens; the limit is 15"),
        ({"tokens": 16, "seconds": 0.1, "call_seconds": 9}, None),  # the call ended
        ({"seconds": 0.1, "call_seconds": 0.1}, "took more than 0.1 s and did not end in the 0.1 s for its last call"),
    ):
        prompt.change_params("limits", **limits)
        prompt.generate()
        assert {record.failure and record.failure.sentence for record in prompt.records()} == {sentence}
        responses = [content for name, content in prompt.outputs().items() if name.endswith(".txt")]
        assert [response == b"" for response in responses] == [sentence is not None] * 4
    decided = prompt.outputs()
    prompt.change_params("limits", prompt_words=800, outage_seconds=1)  # which decide no response
    prompt.generate()
    assert (prompt.outputs(), len(server.asked)) == (decided, before)


def test_the_teams_take_turns_and_what_is_finished_stays_without_the_server_and_alone(three_teams, server, asked):
    three_teams.generate()
    turns = [(letter, verb) for letter in "AB" for verb in ("Build", "Stack", "Pile")]
    assert [(text[-2], text.split()[0]) for text in asked] == [turn for turn in turns for _ in range(2)]
    raw = three_teams.folder / "data/raw/m"
    before, whole = file_states(raw), three_teams.outputs()
    (raw / "beta/B/beta_B_2.json").unlink()
    strays = ("alpha/Z/alpha_Z_1.txt", "alpha/A/alpha_A_3.txt", "alpha/note.md", "delta/A/delta_A_1.txt", "x")
    write_folder(raw, dict.fromkeys(strays, "of no trial"))
    three_teams.generate()
    assert (len(asked), three_teams.outputs()) == (12, whole)
    assert sorted(path.name for path in raw.iterdir()) == ["alpha", "beta", "gamma"]
    changed = {name for name, state in file_states(raw).items() if before[name] != state}
    assert changed == {"beta/B/beta_B_2.json"}  # the same response is not written again
    three_teams.change("teams", {"alpha": {}, "gamma": {}})
    three_teams.change_params("competition", characters="A")
    server.__exit__()
    three_teams.generate()
    assert three_teams.outputs() == {name: whole[name] for name in whole if name.startswith(("m/alpha/A", "m/gamma/A"))}


def test_a_request_that_fails_beside_a_neutral_call_is_its_teams_and_a_busy_server_is_nobodys(
    three_teams: CompetitionFolder, server: SlowOllama, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blame, "PAUSE", 0.01)
    three_teams.add_team("delta", {"prompt.txt": "Draw the letter <OBJECT>."})
    failing = dict(zip(("Build", "Stack", "Pile up", "Draw"), (429, 400, 500, 429), strict=True))
    server.status = lambda text: failing.get(text.removesuffix(" the letter B."), 200)
    code, output = three_teams.run_and_fail(*STAGE)
    assert code == 2
    kinds = ("server-failed", "request-fails", "request-fails", "server-failed")
    for team, kind in zip(("alpha", "beta", "gamma", "delta"), kinds, strict=True):
        message = f"{team} with m: 2 trials failed through no fault of the submission, such as B1 ("
        assert (message in output) == (kind == "server-failed")
        records = three_teams.records(team)
        assert [record.failure and record.failure.kind for record in records] == [None, None, kind, kind]
        for record in records[2:]:
            (call,) = record.failed_calls
            assert len(call.attempts) == (6 if kind == "server-failed" else 2)
            assert all("CUDA out of memory" in attempt.words for attempt in call.attempts)
            assert all(attempt.neutral.output_tokens == 9 for attempt in call.attempts)
    assert three_teams.outputs()["m/beta/B/beta_B_1.txt"] == b""
    code, output = three_teams.run_and_fail("-m", "pcgeval", "export", "recordings")
    assert (code, "alpha_B_1.json: failed through no fault of alpha" in output) == (2, True)
    server.status = lambda text: asked.append(text) or 200
    asked.clear()
    three_teams.generate()
    assert [text for text in asked if text != blame.TEXT] == ["Build the letter B."] * 2 + ["Draw the letter B."] * 2
    (three_teams.folder / "data/raw/m/beta/B/beta_B_1.json").unlink()  # as the docs say
    three_teams.generate()
    assert asked[-1] == "Stack the letter B."


def test_replies_of_two_models_are_never_mixed_not_even_by_a_resumed_run(tmp_path):
    with SlowOllama(0.002) as server:
        competition = competition_folder(tmp_path, server.address, {"prompt.txt": "Build <OBJECT>."}, letters="AB")
        competition.add_team("beta", {"prompt.txt": "Stack <OBJECT>."})
        competition.generate()
        server.name = "m:1-other"
        (tmp_path / "data/raw/m/beta").rename(tmp_path / "beta")  # alpha has all its trials
        code, output = competition.run_and_fail(*STAGE)
        assert code == 2
        assert "answers as m:1-other" in output


def test_without_a_sandbox_no_program_runs_unless_programs_are_trusted(tmp_path, server):
    work = PROGRAM | {"second.py": ""}
    competition = competition_folder(tmp_path, server.address, work, letters="A", trials=2)
    code, output = competition.run_and_fail(*STAGE, **NO_SANDBOX)
    assert (code, "PCGEVAL_TRUST_PROGRAMS=1" in output, server.asked) == (2, True, [])
    competition.run(*STAGE, **TRUST)
    assert [record.contained for record in competition.records()] == [False, False]
    before = len(server.asked)
    submission = tmp_path / "data/submissions/alpha"
    competition.change("teams", {"alpha": {"title": "A", "disqualified": "a reason"}})
    competition.run(*STAGE, **NO_SANDBOX)  # what is finished needs no sandbox
    assert len(server.asked) == before
    for name in ("other.py", "__pycache__/main.pyc", ".hidden"):
        write_folder(submission, {name: ""})
        assert competition.run_and_fail(*STAGE, **NO_SANDBOX)[0] == 2, f"a program with a new {name} runs again"
        (submission / name).unlink()
    competition.change("teams", {"alpha": {"entry": "second.py"}})
    assert competition.run_and_fail(*STAGE, **NO_SANDBOX)[0] == 2, "and so does one with another entry"


def test_what_the_package_index_lacks_fails_the_program_until_the_index_has_it(tmp_path, server):
    with package_index(tmp_path / "index"):
        work = PROGRAM | {"requirements.txt": "example==2\n"}
        competition = competition_folder(tmp_path, server.address, work, letters="A", trials=1)
        competition.run(*STAGE, **TRUST)
        assert [record.failure and record.failure.kind for record in competition.records()] == ["requirements-unmet"]
        write_wheel(tmp_path / "index/wheels", {"example.py": ""}, version="2")
        competition.run(*STAGE, **TRUST)
        (answered,) = competition.records()
        (lock,) = (tmp_path / "data/locks").iterdir()
        lock.write_text("")
        code, output = competition.run_and_fail(*STAGE, **TRUST)  # with another lock the trial runs again
        assert (answered.failure, code, "is no lock of packages" in output) == (None, 2, True)


def test_a_sandbox_that_fails_for_one_trial_is_no_failure_of_the_submission(tmp_path, monkeypatch, server):
    competition = competition_folder(tmp_path, server.address, PROGRAM, letters="A", trials=2)
    competition.change_model(concurrency=1)
    started, faults = Sandbox.start, iter(["bwrap: no more processes"])

    def start(sandbox: Sandbox, command: list[str], **values: Any) -> Any:
        if command[-1] == "main.py" and (fault := next(faults, None)):
            raise SandboxError(fault)
        return started(sandbox, command, **values)

    monkeypatch.setattr(Sandbox, "start", start)
    code, output = competition.run_and_fail(*STAGE, **TRUST)
    assert (code, "bwrap: no more processes" in output) == (2, True)
    assert [record.failure and record.failure.kind for record in competition.records()] == ["no-sandbox", None]
    competition.run(*STAGE, **TRUST)
    assert [record.failure for record in competition.records()] == [None, None]
    assert len(server.asked) == 2 * 3
