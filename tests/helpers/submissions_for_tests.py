"""A small competition's folders, written by hand as its stages would write them."""

from params_for_tests import small_params

from pcgeval.core.files import sha256_bytes, write_json, write_text
from pcgeval.core.layout import SUBMISSIONS, letter_file, stage_dir, summaries_file, trial_file, trials
from pcgeval.core.stage_files import failed, succeeded, write_outcomes
from pcgeval.core.trials import ChatReply, Exchange, Flag, TrialRecord, write_trial
from pcgeval.generation.summaries import summarise_trials
from pcgeval.submissions.load import Prompt, Submission

REPLY = "Here it is:\n```python\ndrop_block('b11', 9)\n```\n"
PARAMS = small_params("IT", teams=("team-one", "team-two"), models=("small", "large"))


def write_submission(root, team="team-one", prompt="Build <OBJECT> with drop_block.", readme="Team one's prompt."):
    write_text(root / SUBMISSIONS / team / "README.md", readme)
    write_text(root / SUBMISSIONS / team / "prompt.txt", prompt)


def write_response(folder, team, trial, text, flags=(), *, contained=True):
    """Write a response and its record as the stage generate does; `flags` are pairs of a kind and a detail."""
    exchange = Exchange("key", ChatReply(text, 10, 5, "stop", 0.1))
    digest = sha256_bytes(text.encode())
    raised = tuple(Flag(*flag) for flag in flags)
    record = TrialRecord("fingerprint", 1, "m", "d", (exchange,), digest, None, flags=raised, contained=contained)
    write_trial(folder, team, trial, text, record)


def write_results(
    root, model, team="team-one", *, failures=None, replies=None, top=True, flags=None, contained=True, recorded=True
):
    """Write the results of a model.

    `failures` maps (letter, number) to a stage and a reason, `flags` to pairs of a kind and a detail.
    """
    folder = {step: root / stage_dir(step, model, team) for step in ("raw", "stability", "similarity", "diversity")}
    failures, outcomes = failures or {}, []
    alive = [trial for trial in trials(PARAMS) if (trial.letter, trial.number) not in failures]
    for trial in trials(PARAMS):
        key = (trial.letter, trial.number)
        outcomes.append(failed(trial, *failures[key]) if key in failures else succeeded(trial))
        text = (replies or {}).get(key, REPLY)
        if recorded:
            write_response(folder["raw"], team, trial, text, (flags or {}).get(key, ()), contained=contained)
        else:
            write_text(trial_file(folder["raw"], "raw", team, trial), text)
    if recorded:
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
