"""Results to score: golden cases of the official script, random ones, and folders in the official layout."""

import gzip
from fractions import Fraction
from pathlib import Path

from hypothesis import strategies as st

from pcgeval.core.files import write_json
from pcgeval.scoring.inputs import CompetitionResults, Entry, LetterResults, ScoringRules, TeamResults, from_float

GOLDEN = Path(__file__).parents[1] / "golden" / "scores"
CASES = sorted(path.name for path in GOLDEN.iterdir())
OFFICIAL_NAMES = ("constants.json", "trial_scores.csv", "character_scores.csv", "prompt_scores_ranks.csv")
RULES = ScoringRules(letters="AB", trials=3)


def golden_text(case, name):
    return gzip.decompress((GOLDEN / case / f"{name}.gz").read_bytes()).decode()


def measured(stability, similarity, diversity):
    """Results from floats: trial number to score, trial number to probability, and the diversity; None where absent."""
    values = [
        None if by_trial is None else tuple(Entry(trial, from_float(value)) for trial, value in by_trial.items())
        for by_trial in (stability, similarity)
    ]
    return LetterResults(*values, None if diversity is None else from_float(diversity))


def uniform(stability, similarity, diversity):
    """A team with three equal trials of the letter A."""
    numbers = (1, 2, 3)
    return TeamResults(
        {"A": measured(dict.fromkeys(numbers, stability), dict.fromkeys(numbers, similarity), diversity)}
    )


def write_official(source, inputs):
    """Write a golden case's inputs as the official tools lay them out."""
    for team, letters in inputs.items():
        for letter, values in letters.items():
            if values["stability"] is not None:
                raws = [{"tag": tag, "score": score} for tag, score in values["stability"]]
                write_json(source / team / "stability" / f"{letter}.json", {"dataCount": len(raws), "raws": raws})
            if values["similarity"] is not None:
                trials = [{"id": name, "label": letter, "similarity": value} for name, value in values["similarity"]]
                write_json(source / team / "similarity" / f"{letter}.json", {"count": len(trials), "trials": trials})
            if values["diversity"] is not None:
                write_json(source / team / "diversity" / f"{letter}.json", {"diversityRate": values["diversity"]})


# --- hypothesis ---

unit = st.floats(0, 1).map(lambda value: round(value, 7))
whole = st.dictionaries(st.integers(1, 4), unit, min_size=3)  # mostly, so that most totals are above 0
trial_values = st.one_of(whole, whole, whole, st.dictionaries(st.integers(1, 4), unit), st.none())
letter_values = st.builds(measured, trial_values, trial_values, st.one_of(unit, unit, unit, st.none()))
team_values = st.builds(TeamResults, st.fixed_dictionaries({"A": letter_values}, optional={"B": letter_values}))
names = st.lists(st.sampled_from(["alpha", "Beta", "b-10", "b-2", "é"]), min_size=1, max_size=4, unique=True)


@st.composite
def competitions(draw):
    """One to three models with the same one to four teams, letters A and B, trials 1 to 3 and strays numbered 4."""
    teams = draw(names)
    models = draw(st.lists(st.sampled_from(["m1", "m2", "m3"]), min_size=1, max_size=3, unique=True))
    return CompetitionResults({model: {team: draw(team_values) for team in teams} for model in models})


# --- the formulas once more, slowly and literally, in fractions ---


def rounded(value):
    """Half up to 20 places; all values here are at least 0."""
    scaled = value * 10**20
    return Fraction((2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator), 10**20)


def literal_value(letter, kind, trial):
    values = [entry.value for entry in getattr(letter, kind) or () if entry.trial == trial]
    return Fraction(values[0]) if values else Fraction(0)


def literal_weight(teams, letter, rules):
    product = Fraction(1)
    for kind in ("stability", "similarity", "diversity"):
        total, count = Fraction(0), 0
        for team in teams.values():
            results = team.letters.get(letter, LetterResults())
            if kind == "diversity":
                total += Fraction(results.diversity or 0)
                count += 1
            for trial in range(1, rules.trials + 1) if kind != "diversity" else ():
                total += literal_value(results, kind, trial)
                count += 1
        product *= max(1 - rounded(total / count), rounded(Fraction(1, len(rules.letters))))
    return product


def literal_prompt_score(teams, name, rules):
    letter_scores = Fraction(0)
    for letter in rules.letters:
        results = teams[name].letters.get(letter, LetterResults())
        weight = literal_weight(teams, letter, rules)
        trials = Fraction(0)
        for trial in range(1, rules.trials + 1):
            trials += weight * literal_value(results, "stability", trial) * literal_value(results, "similarity", trial)
        letter_scores += rounded(trials / rules.trials) * Fraction(results.diversity or 0)
    return rounded(letter_scores / len(rules.letters))
