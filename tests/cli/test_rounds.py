"""A round has a workspace and a seed apart from the final's; what a model was asked is not asked again."""

import shutil
from pathlib import Path

from competition_folder import PROMPT, CompetitionFolder, competition_folder
from slow_ollama import SlowOllama

from pcgeval.cli.main import main
from pcgeval.cli.rounds import INPUTS, ROUNDS, prepare_round
from pcgeval.core.layout import SUBMISSIONS
from pcgeval.core.locks import lock_folder
from pcgeval.submissions.filing import LOCK

MIDTERM = {"characters": "AB", "trials": 2}  # with a seed of its own


def with_rounds(folder, host="http://127.0.0.1:9", **rounds):
    """Lay out a competition with rounds, and the inputs that the stage generate has no need of."""
    competition = competition_folder(folder, host, PROMPT, letters="AB", trials=2)
    competition.change("rounds", rounds)
    for name in (*INPUTS, "src"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return competition


def test_only_a_round_with_the_finals_seed_shares_its_replies_and_nothing_is_asked_twice(tmp_path):
    with SlowOllama(0.002) as server:
        practice = {"characters": "AC", "trials": 2, "seed": 6280}
        final = with_rounds(tmp_path, server.address, midterm=MIDTERM, practice=practice)
        asked = []
        for competition in (
            final,
            *(CompetitionFolder(prepare_round(name, tmp_path)) for name in final.params()["rounds"]),
        ):
            competition.generate()
            asked.append(len(server.asked))
        assert asked == [4, 4 + 4, 8 + 2]  # two trials of the letter C
        rounds = {name: CompetitionFolder(prepare_round(name, tmp_path)) for name in ("midterm", "practice")}
        for path in rounds["practice"].folder.glob("data/raw/m/alpha/*/*.json"):
            path.unlink()
        for competition in rounds.values():
            competition.generate()
        assert len(server.asked) == len(set(server.asked)) == 10
    for name in ("m/alpha/A/alpha_A_1.txt", "m/alpha/A/alpha_A_2.txt"):
        replies = [competition.outputs()[name] for competition in (final, *rounds.values())]
        assert replies[0] == replies[2] != replies[1]


def test_what_is_no_round_or_is_used_stays_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(with_rounds(tmp_path, midterm=MIDTERM).folder)

    def refusal(name="midterm"):
        assert main(["run", "--round", name]) == 2
        return capsys.readouterr().err

    assert "no round 'finals'" in refusal("finals")
    with lock_folder(SUBMISSIONS, LOCK):  # as `pcgeval submit` holds it
        assert "is working on it" in refusal()
    assert not ROUNDS.exists()
    notes = Path("rounds/midterm/data/submissions/notes.txt")
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    assert "already exists" in refusal()
    assert [path for path in ROUNDS.rglob("*") if path.is_file()] == [notes]
    shutil.rmtree("rounds")
    Path("data/rubrics").rmdir()
    assert "data/rubrics: is missing" in refusal()
