"""Programs that draw, read the clock, or ask in threads: their competition passes its audit, and forged it does not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_servers import DIGEST
from program_trials import HEADER, loop
from tampered_competition import LEVEL, Builder, edit_json, raw, summarise
from workspace import evaluate, make_workspace, write_submission

from pcgeval.core.files import sha256_file
from pcgeval.formats.layout import Trial
from pcgeval.formats.trials import read_record
from pcgeval.proof.audit import audit

pytestmark = pytest.mark.needs_sandbox

ASK = "chat_with_llm(ctx, [{'role': 'user', 'content': f'Build {letter}, %s'}])[0]"
PROGRAMS = {
    "chance": "import random, tempfile\n"
    f"return {ASK % '{random.choice(range(10**6))} {random.Random().random()} {tempfile.mktemp()}'}",
    "clock": "from time import perf_counter, sleep\n"
    "while perf_counter() - ctx.get_start_time() < 0.8:\n"
    f"    best = {ASK % 'again'}\n    sleep(0.05)\n    print(sum(range(10**6)))\n"
    "return best",
    "date": "import datetime, random, time\n"
    "random.seed(time.time_ns())\n"
    f"first = {ASK % '{datetime.datetime.now()} {time.ctime()} {random.random()}'}\n"
    f"return {ASK % '{time.monotonic()} {datetime.date.today()} {set(map(str, range(9)))} {hash(first)}'}",
    "threads": "from concurrent.futures import ThreadPoolExecutor\n"
    "def refine(name):\n"
    f"    for turn in range(3):\n        best = {ASK % '{name} {turn}'}\n    return best\n"
    "with ThreadPoolExecutor(3) as pool:\n    return max(pool.map(refine, 'abc'))",
    "unknowable": f"import uuid\nreturn {ASK % '{uuid.uuid4()}'}",
}
TEAMS = ["alpha", *PROGRAMS]
I1 = Trial("I", 1)


def make_repeatable(folder: Path) -> Path:
    workspace = make_workspace(folder)
    for team, body in PROGRAMS.items():
        write_submission(folder, team, {"main.py": HEADER + loop(body)})
    workspace.change("teams", {"alpha": {"role": "baseline"}, **dict.fromkeys(PROGRAMS)})
    workspace.change_params("competition", characters="I", trials=2)
    with Builder(0.1) as server:
        model = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": server.address, "concurrency": 2}
        workspace.change("models", {"live": model})
        evaluate(folder)
        calls = [len(read_record(path).exchanges) for path in (folder / "data/raw/live").rglob("*.json")]
        assert len(server.asked) == sum(calls), "the second run of a program asks nothing"
    return folder


@pytest.fixture(scope="session")
def evaluated(shared_folder: Callable[..., Path]) -> Path:
    return shared_folder(make_repeatable)


def flags(root: Path, team: str) -> set[str]:
    paths = (root / "data/raw/live" / team).rglob("*.json")
    return {flag.kind for path in paths for flag in read_record(path).flags}


def test_what_programs_draw_and_read_is_the_same_in_a_repetition_and_what_is_not_is_named(evaluated):
    result = audit(evaluated, is_bundle=True)
    assert result.passed(), (result.differences, result.faults)
    assert not result.not_run
    assert {team.again for team in result.teams} == {team.total for team in result.teams}
    assert {team: flags(evaluated, team) for team in TEAMS if flags(evaluated, team)} == {
        "unknowable": {"unrepeatable"}
    }
    noted = [note for note in result.notes if "repetitions" in note]
    assert [note.partition(" ")[0] for note in noted] == ["unknowable", "unknowable"]


def test_a_trial_draws_and_sees_another_time_than_the_next(evaluated):
    for team in ("chance", "date"):
        records = [read_record(path) for path in (evaluated / "data/raw/live" / team).rglob("*.json")]
        assert len({record.exchanges[0].messages for record in records}) == 2


FLAG = [{"kind": "unrepeatable", "detail": "a second run gave another answer"}]


def slower(value: Any) -> None:
    for exchange in value["exchanges"]:
        exchange["at"] += 30


def change(team: str, edit: Callable[[Any], None]) -> Callable[[Path], None]:
    return lambda root: edit_json(raw(root, "live", team, I1)[1], edit)


def another_answer(team: str) -> Callable[[Path], None]:
    def forge(root: Path) -> None:
        response, _ = raw(root, "live", team, I1)
        response.write_text(LEVEL)
        change(team, lambda value: value.update(response_sha256=sha256_file(response), flags=FLAG))(root)

    return forge


FORGERIES: dict[str, tuple[Callable[[Path], None], str, tuple[str, ...]]] = {
    "times that go back": (
        change("clock", lambda value: value["exchanges"][-1].update(at=0.001)),
        "differences",
        ("clock_I_1.json", "at"),
    ),
    "a program that took its time": (change("threads", slower), "notes", ("threads with live, I1", " 3")),
    "a flag": (change("chance", lambda value: value.update(flags=FLAG)), "notes", ("chance with live, I1", "like")),
    "a flag and an answer": (another_answer("chance"), "faults", ("chance with live, I1", "all alike")),
    "an answer of what varies": (another_answer("unknowable"), "faults", ("unknowable with live, I1", "none of the")),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_times_and_flags_are_named(name: str, evaluated: Path, tmp_path: Path) -> None:
    forge, kind, words = FORGERIES[name]
    root = Path(shutil.copytree(evaluated, tmp_path / "forged", symlinks=True))
    forge(root)
    summarise(root)
    evaluate(root, since="extract")
    result = audit(root, is_bundle=True)
    findings = map(str, getattr(result, kind))
    assert any(all(word in finding for word in words) for finding in findings), result
    assert result.passed() == (kind == "notes"), (result.differences, result.faults)
