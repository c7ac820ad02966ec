"""The ranking of what is measured so far, while an evaluation runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pcgeval.core.errors import FileError
from pcgeval.core.layout import stage_dir
from pcgeval.core.params import Params
from pcgeval.scoring.formulas import score_competition
from pcgeval.scoring.inputs import CompetitionResults, ScoringError, TeamResults
from pcgeval.scoring.ranking import Ranking, rank
from pcgeval.scoring.stages import entrant_of, read_measured_team, rules_of
from pcgeval.submissions.load import Submission

_READ: dict[tuple[str, str], tuple[object, TeamResults]] = {}  # with the state of its folders, for `--watch`


@dataclass(frozen=True)
class ProvisionalRanking:
    """A ranking that may still change, over the models that count in it; `measured` maps every model to teams."""

    ranking: Ranking
    models: tuple[str, ...]
    measured: dict[str, tuple[str, ...]]


def provisional_ranking(
    params: Params, submissions: Iterable[Submission], flagged: Mapping[tuple[str, str], int]
) -> ProvisionalRanking | None:
    """Rank the teams whose levels are simulated, classified and compared; None if there are none yet.

    The models count with which every team is measured, so that all teams are ranked by the same; until there is one,
    the model counts with which most teams are, and those teams alone are ranked. Nothing is written.

    Args:
        params: The competition in the working directory.
        submissions: The teams to rank; those that are disqualified are named and not scored.
        flagged: Flagged trials by model and team.

    Raises:
        ScoringError: What is measured so far cannot meet in one ranking.
    """
    entrants = [
        entrant_of(params, each, {model: flagged[model, each.team] for model in params.models}) for each in submissions
    ]
    disqualified = {each.team for each in entrants if each.disqualified is not None}
    results = {model: _measured(params, model, [each.team for each in entrants]) for model in params.models}
    scored = CompetitionResults(results).without(disqualified).models
    most = max(scored.values(), key=len)
    if not most:
        return None
    everyone = len(entrants) - len(disqualified)
    models = [model for model, teams in scored.items() if len(teams) == everyone]
    models = models or [model for model, teams in scored.items() if teams is most]
    rules = rules_of(params)
    if rules.baseline not in most:
        rules = replace(rules, baseline=None)
    scores = score_competition(CompetitionResults({model: scored[model] for model in models}), rules)
    ranked = [each for each in entrants if each.team in most or each.team in disqualified]
    measured = {model: tuple(teams) for model, teams in results.items()}
    return ProvisionalRanking(rank(scores, ranked), tuple(models), measured)


def _measured(params: Params, model: str, teams: Iterable[str]) -> dict[str, TeamResults]:
    """Read the teams whose measurements are complete; a stage may just be writing those of another."""
    found = {}
    for team in teams:
        try:
            folders = [stage_dir(name, model, team) for name in ("stability", "similarity", "diversity")]
            stats = [folder.resolve().stat() for folder in folders]
            state = (rules_of(params), *((each.st_dev, each.st_ino, each.st_mtime_ns) for each in stats))
            if _READ.get((model, team), (None,))[0] != state:
                _READ[model, team] = state, read_measured_team(params, model, team)
        except (FileError, ScoringError, OSError):
            continue
        found[team] = _READ[model, team][1]
    return found
