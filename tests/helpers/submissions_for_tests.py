"""A small competition's folders, written by hand as its stages would write them."""

from evaluated_round import Noted, write_reply
from params_for_tests import small_params

from pcgeval.core.files import write_json
from pcgeval.core.layout import letter_file, stage_dir, summaries_file, trials
from pcgeval.core.stage_files import TrialOutcome, failed, write_outcomes
from pcgeval.generation.summaries import summarise_trials
from pcgeval.submissions.load import Prompt, Submission

REPLY = "Here it is:\n```python\ndrop_block('b11', 9)\n```\n"
PARAMS = small_params("IT", teams=("team-one", "team-two"), models=("small", "large"))


def write_results(root, model, team="team-one", *, failures=None, replies=None, top=True):
    """Write the results of a model; `failures` maps (letter, number) to a stage and a reason."""
    folder = {step: root / stage_dir(step, model, team) for step in ("raw", "stability", "similarity", "diversity")}
    failures, outcomes = failures or {}, []
    alive = [trial for trial in trials(PARAMS) if (trial.letter, trial.number) not in failures]
    for trial in trials(PARAMS):
        key = (trial.letter, trial.number)
        outcomes.append(
            failed(trial, *failures[key]) if key in failures else TrialOutcome(letter=trial.letter, trial=trial.number)
        )
        write_reply(folder["raw"], team, trial, (replies or {}).get(key, REPLY), Noted(), "fingerprint")
    submission = Submission(team, Prompt("Draw <OBJECT>."))
    summarise_trials(root / summaries_file(model, team), folder["raw"], submission, trials(PARAMS))
    write_outcomes(folder["stability"], outcomes)
    for letter in PARAMS.competition.characters:
        names = [f"{team}_{letter}_{trial.number}" for trial in alive if trial.letter == letter]
        levels = [{"tag": f"{team}/levels/{letter}/{name}.xml", "score": 0.5} for name in names]
        write_json(letter_file(folder["stability"], letter), {"raws": levels})
        target, other = (0.25, 0.25) if top else (0.1, 0.8)
        shares = {"I": target, "T": target, "Q": other}
        raws = [{"label": label, "softmax_prob": share} for label, share in shares.items()]
        classified = [{"id": f"{name}.png", "label": letter, "similarity": target} for name in names]
        predicted = [{"id": f"{name}.png", "raws": raws} for name in names]
        write_json(letter_file(folder["similarity"], letter), {"trials": classified, "similarities": predicted})
        write_json(letter_file(folder["diversity"], letter), {"diversityRate": 0.1 if letter == "I" else 0.0})
