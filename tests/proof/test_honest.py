"""Honest competitions: whatever happens to them, a strict audit passes."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial

import pytest
from honest_competition import HonestCompetition
from program_trials import HEADER, loop
from workspace import write_submission

from pcgeval.cli.check import prepare_round
from pcgeval.cli.main import main
from pcgeval.formats.trials import TrialRecord, read_record

pytestmark = pytest.mark.needs_sandbox
ASK = "chat_with_llm(ctx, [{'role': 'user', 'content': f'Stack blocks into {letter}, %s'}])[0]"
Honest = HonestCompetition


def program(body: str) -> dict[str, str]:
    return {"main.py": HEADER + loop(body)}


PROGRAMS: dict[str, tuple[dict[str, str], bool | None]] = {  # their files, and whether all of their trials fail
    "fails with other words each time": (program("import os\nraise ValueError(f'{os.urandom(8)} {object()}')"), True),
    "whose request is refused": (program(f"first = {ASK % 'now'}\nreturn {ASK % 'FILTER'}"), True),
    "requires what no index has": ({**program("return ''"), "requirements.txt": "no-such-package-of-ours==9\n"}, True),
    "requires what is no package": ({**program("return ''"), "requirements.txt": "-r other.txt\n"}, True),
    "with a package": (
        {**program(f"import example\nreturn {ASK % '{example.WORD}'}"), "requirements.txt": "example\n"},
        False,
    ),
    "draws without a seed": (program(f"import random\nreturn {ASK % '{random.choice(range(10**6))}'}"), False),
}


def prompts(it: Honest, *words: str) -> None:
    """Let a team hand in a prompt with a word to which the server listens."""
    for word in words:
        it.add_prompt(word)
    it.evaluate()


def a_dated_name_of_the_model(it: Honest) -> None:
    shutil.rmtree(it.folder / ".pcgeval")
    shutil.rmtree(it.folder / "data" / "raw")
    it.server.calls_itself = "m-2024-08-06"
    it.evaluate()


def requests_that_break_the_server(it: Honest) -> None:
    prompts(it, "BREAK")
    assert {record.failure.kind for record in records(it) if record.failure} == {"request-fails"}


def an_outage(it: Honest) -> None:
    it.server.away = 2
    prompts(it, "Now")
    assert not [record for record in records(it) if record.failure]


def a_killed_run(it: Honest) -> None:
    it.add_prompt("Now")
    it.kill_in_the_middle()
    it.evaluate()


def a_team_withdrawn(it: Honest, *, removed: bool = False) -> None:
    prompts(it, "Now")
    it.withdraw("gamma")
    if removed:
        shutil.rmtree(it.folder / "data" / "submissions" / "gamma")
    it.evaluate()


def another_prompt_after_the_first_run(it: Honest) -> None:
    write_submission(it.folder, "beta", {"prompt.txt": "Now build the letter <OBJECT> of blocks."})
    it.evaluate()


def another_order_of_teams_and_a_disqualified_one(it: Honest) -> None:
    it.change("teams", dict(reversed(it.params()["teams"].items())))
    it.evaluate()
    it.change_params("teams", beta={"disqualified": "it handed in too late"})
    it.evaluate()


def an_edited_rubric(it: Honest) -> None:
    it.edit_rubric()
    it.evaluate()


def a_judges_warning_and_then_an_edited_rubric(it: Honest) -> None:
    it.judge()
    it.evaluate()
    grade = json.loads((it.folder / "data/grades/beta/grade.json").read_text())
    assert "Less than half" in json.dumps(grade)
    an_edited_rubric(it)


def a_midterm_between_two_runs_of_the_final(it: Honest) -> None:
    it.change("rounds", {"midterm": {"characters": "H", "trials": 2, "seed": 1}})
    midterm = Honest(prepare_round("midterm", it.folder), it.server)
    midterm.evaluate()
    prompts(it, "Now")


def programs_of_all_kinds(it: Honest) -> None:
    for number, (work, _) in enumerate(PROGRAMS.values()):
        it.add_team(f"team{number}", work)
    it.evaluate()
    for number, (name, (_, fails)) in enumerate(PROGRAMS.items()):
        assert {record.failure is not None for record in records(it, f"team{number}")} == {fails}, name


def a_program_that_asks_for_too_much(it: Honest) -> None:
    it.change_params("limits", tokens=60)
    it.add_team("gamma", program(f"while True:\n    best = {ASK % 'again'}"))
    it.evaluate()


def a_program_with_numpy(it: Honest) -> None:
    for name in ("UV_NO_INDEX", "UV_FIND_LINKS"):
        del os.environ[name]
    work = program(f"import numpy\nreturn {ASK % '{numpy.random.default_rng().integers(10**9)}'}")
    it.add_team("gamma", {**work, "requirements.txt": "numpy\n"})
    it.evaluate()


def the_clock_of_the_rules(it: Honest) -> None:
    it.server.seconds = 0.1
    until = "from time import perf_counter\nwhile perf_counter() - ctx.get_start_time() < 0.5:\n"
    it.add_team("gamma", program(f"{until}    best = {ASK % 'again'}\nreturn best"))
    it.evaluate()


HISTORIES: dict[str, Callable[[Honest], None]] = {
    "prompts alone": prompts,
    "prompts of which the replies are ASCII art, thoughts, cut off, refused by a filter, or too long": (
        lambda it: prompts(it, "ART", "THINK", "CUT", "FILTER", "LONG")
    ),
    "a team withdrawn and its folder removed": partial(a_team_withdrawn, removed=True),
    **{
        history.__name__: history
        for history in (
            *(a_dated_name_of_the_model, requests_that_break_the_server, an_outage, a_killed_run, a_team_withdrawn),
            *(another_prompt_after_the_first_run, another_order_of_teams_and_a_disqualified_one, an_edited_rubric),
            *(a_judges_warning_and_then_an_edited_rubric, a_midterm_between_two_runs_of_the_final),
            *(programs_of_all_kinds, a_program_that_asks_for_too_much, a_program_with_numpy, the_clock_of_the_rules),
        )
    },
}


def records(it: Honest, team: str = "gamma") -> list[TrialRecord]:
    return [read_record(path) for path in sorted((it.folder / "data/raw/live" / team).rglob("*.json"))]


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_an_honest_competition_passes(history, live, monkeypatch, capsys):
    history(live)
    live.publish()
    elsewhere = live.folder.with_name("elsewhere")
    live.folder.rename(elsewhere)
    monkeypatch.chdir(elsewhere)
    capsys.readouterr()
    code = main(["audit", "--strict"])
    shown = capsys.readouterr().out
    assert code == 0, shown
    assert shown.startswith("PASSED")
    lines = [line.split() for line in shown.splitlines()]
    assert all(int(words[4]) > 0 for words in lines if words[2:3] == ["disqualified"]), "its trials are counted, too"
