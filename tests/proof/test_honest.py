"""Honest competitions: whatever happens to them, a strict audit passes."""

import json
import os
import shutil

import pytest
from competition_folder import write_submission
from honest_competition import HonestCompetition
from program_trials import HEADER, loop

from pcgeval.cli.main import main
from pcgeval.cli.run import prepare_round
from pcgeval.formats.trials import TrialRecord, read_record

pytestmark = pytest.mark.needs_sandbox
ASK = "chat_with_llm(ctx, [{'role': 'user', 'content': f'Stack blocks into {letter}, %s'}])[0]"
Honest = HonestCompetition


def program(body: str) -> dict[str, str]:
    return {"main.py": HEADER + loop(body)}


def prompts_alone(it: Honest) -> None:
    it.evaluate()


def a_dated_name_of_the_model(it: Honest) -> None:
    shutil.rmtree(it.folder / ".pcgeval")
    shutil.rmtree(it.folder / "data" / "raw")
    it.server.calls_itself = "m-2024-08-06"
    it.evaluate()


def ascii_art(it: Honest) -> None:
    it.add_prompt("ART")
    it.evaluate()


def thoughts_alone(it: Honest) -> None:
    it.add_prompt("THINK")
    it.evaluate()


def replies_cut_off(it: Honest) -> None:
    it.add_prompt("CUT")
    it.evaluate()


def a_content_filter(it: Honest) -> None:
    it.add_prompt("FILTER")
    it.evaluate()


def a_prompt_longer_than_the_context(it: Honest) -> None:
    it.add_prompt("LONG")
    it.evaluate()


def requests_that_break_the_server(it: Honest) -> None:
    it.add_prompt("BREAK")
    it.evaluate()
    assert {record.failure.kind for record in records(it) if record.failure} == {"request-fails"}


def an_outage(it: Honest) -> None:
    it.add_prompt("Now")
    it.server.away = 2
    it.evaluate()
    assert not [record for record in records(it) if record.failure]


def a_killed_run(it: Honest) -> None:
    it.add_prompt("Now")
    it.kill_in_the_middle()
    it.evaluate()


def a_team_withdrawn(it: Honest) -> None:
    it.add_prompt("Now")
    it.evaluate()
    it.withdraw("gamma")
    it.evaluate()


def a_team_withdrawn_and_its_folder_removed(it: Honest) -> None:
    it.add_prompt("Now")
    it.evaluate()
    it.withdraw("gamma")
    shutil.rmtree(it.folder / "data" / "submissions" / "gamma")
    it.evaluate()


def another_prompt_after_the_first_run(it: Honest) -> None:
    write_submission(it.folder, "beta", {"prompt.txt": "Now build the letter <OBJECT> of blocks."})
    it.evaluate()


def another_order_of_teams(it: Honest) -> None:
    it.change("teams", dict(reversed(it.params()["teams"].items())))
    it.evaluate()


def a_disqualified_team(it: Honest) -> None:
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
    it.edit_rubric()
    it.evaluate()


def a_midterm_between_two_runs_of_the_final(it: Honest) -> None:
    it.change("rounds", {"midterm": {"characters": "H", "trials": 2, "seed": 1}})
    midterm = Honest(prepare_round("midterm", it.folder), it.server)
    midterm.evaluate()
    it.add_prompt("Now")
    it.evaluate()


def a_program_that_fails_with_other_words_each_time(it: Honest) -> None:
    it.add_team("gamma", program("import os\nraise ValueError(f'{os.urandom(8)} {object()}')"))
    it.evaluate()
    assert any(record.failure.detail for record in records(it) if record.failure)


def a_program_that_asks_for_too_much(it: Honest) -> None:
    it.change_params("limits", tokens=60)
    it.add_team("gamma", program(f"while True:\n    best = {ASK % 'again'}"))
    it.evaluate()


def a_program_whose_request_is_refused(it: Honest) -> None:
    it.add_team("gamma", program(f"first = {ASK % 'now'}\nreturn {ASK % 'FILTER'}"))
    it.evaluate()


def requirements_that_no_index_meets(it: Honest) -> None:
    it.add_team("gamma", {**program("return ''"), "requirements.txt": "no-such-package-of-ours==9\n"})
    it.evaluate()
    assert all(record.failure for record in records(it))


def requirements_that_are_no_packages(it: Honest) -> None:
    it.add_team("gamma", {**program("return ''"), "requirements.txt": "-r other.txt\n"})
    it.evaluate()


def a_program_with_a_package(it: Honest) -> None:
    work = program(f"import example\nreturn {ASK % '{example.WORD}'}")
    it.add_team("gamma", {**work, "requirements.txt": "example\n"})
    it.evaluate()
    assert not [record for record in records(it) if record.failure]


def a_program_with_numpy(it: Honest) -> None:
    for name in ("UV_NO_INDEX", "UV_FIND_LINKS"):
        del os.environ[name]
    work = program(f"import numpy\nreturn {ASK % '{numpy.random.default_rng().integers(10**9)}'}")
    it.add_team("gamma", {**work, "requirements.txt": "numpy\n"})
    it.evaluate()


def chance_without_a_seed(it: Honest) -> None:
    it.add_team("gamma", program(f"import random\nreturn {ASK % '{random.choice(range(10**6))}'}"))
    it.evaluate()


def the_clock_of_the_rules(it: Honest) -> None:
    it.server.seconds = 0.1
    until = "from time import perf_counter\nwhile perf_counter() - ctx.get_start_time() < 0.5:\n"
    it.add_team("gamma", program(f"{until}    best = {ASK % 'again'}\nreturn best"))
    it.evaluate()


HISTORIES = [
    prompts_alone,
    a_dated_name_of_the_model,
    ascii_art,
    thoughts_alone,
    replies_cut_off,
    a_content_filter,
    a_prompt_longer_than_the_context,
    requests_that_break_the_server,
    an_outage,
    a_killed_run,
    a_team_withdrawn,
    a_team_withdrawn_and_its_folder_removed,
    another_prompt_after_the_first_run,
    another_order_of_teams,
    a_disqualified_team,
    an_edited_rubric,
    a_judges_warning_and_then_an_edited_rubric,
    a_midterm_between_two_runs_of_the_final,
    a_program_that_fails_with_other_words_each_time,
    a_program_that_asks_for_too_much,
    a_program_whose_request_is_refused,
    requirements_that_no_index_meets,
    requirements_that_are_no_packages,
    a_program_with_a_package,
    a_program_with_numpy,
    chance_without_a_seed,
    the_clock_of_the_rules,
]


def records(it: Honest, team: str = "gamma") -> list[TrialRecord]:
    return [read_record(path) for path in sorted((it.folder / "data/raw/live" / team).rglob("*.json"))]


@pytest.mark.parametrize("history", HISTORIES)
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
