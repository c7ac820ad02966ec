"""A round has a workspace and a seed apart from the final's; what a model was asked is not asked again."""

from pathlib import Path

from model_servers import SlowOllama
from workspace import PROMPT, CompetitionFolder, competition_folder

from pcgeval.cli.check import ROUNDS, prepare_round
from pcgeval.cli.main import main
from pcgeval.proof.parts import parts_for

MIDTERM = {"characters": "AB", "trials": 2}  # with a seed of its own


def with_rounds(folder, host="http://127.0.0.1:9", **rounds):
    """Lay out a competition with rounds, and the inputs that the stage generate has no need of."""
    competition = competition_folder(folder, host, PROMPT, letters="AB", trials=2)
    competition.change("rounds", rounds)
    for part in parts_for("round"):
        if not part.is_optional:
            (folder / part.path).mkdir(parents=True, exist_ok=True)
    return competition


def test_only_a_round_with_the_finals_seed_shares_its_replies_and_nothing_is_asked_twice(tmp_path):
    with SlowOllama(0.002) as server:
        as_final = {"characters": "AC", "trials": 2, "seed": 6280}
        final = with_rounds(tmp_path, server.address, midterm=MIDTERM, practice=as_final)
        final.generate()
        assert len(server.asked) == 4
        midterm, practice = (CompetitionFolder(prepare_round(name, tmp_path)) for name in ("midterm", "practice"))
        for competition in (midterm, practice):
            competition.generate()
        assert len(server.asked) == 4 + 4 + 2  # the practice has two trials of the letter C
        for path in practice.folder.glob("data/raw/m/alpha/*/*.json"):
            path.unlink()
        for name, competition in (("midterm", midterm), ("practice", practice)):
            prepare_round(name, tmp_path)  # the same seed again
            competition.generate()
        assert len(server.asked) == len(set(server.asked)) == 10
    replies = [competition.outputs()["m/alpha/A/alpha_A_1.txt"] for competition in (final, midterm, practice)]
    assert replies[0] == replies[2] != replies[1]


def test_what_is_no_round_or_is_used_stays_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(with_rounds(tmp_path, midterm=MIDTERM).folder)
    assert main(["run", "--round", "finals"]) == 2
    assert "no round 'finals'" in capsys.readouterr().err
    assert not ROUNDS.exists()
    notes = Path("rounds/midterm/data/submissions/notes.txt")
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    assert main(["run", "--round", "midterm"]) == 2
    assert "already exists" in capsys.readouterr().err
    assert [path for path in ROUNDS.rglob("*") if path.is_file()] == [notes]
