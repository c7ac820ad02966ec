"""Draw the plots that `dvc plots show` and `dvc plots diff` put on a page: pictures, so that no script is loaded."""

from decimal import Decimal
from pathlib import Path

from jinja2 import Environment

from pcgeval.core.files import write_text
from pcgeval.core.untrusted import printable_text
from pcgeval.report.results import Evaluation, TeamResult

FAINTEST = 0.12  # opacity of the smallest score above 0
PLOTS = ("letters.svg", "models.svg")


def write_plots(evaluation: Evaluation, folder: Path, templates: Environment) -> None:
    """Write `letters.svg`, the score of each letter, and `models.svg`, the score with each model, into a folder."""
    scores = {
        (team.name, model.name): [letter.scores.score if letter.scores else Decimal(0) for letter in model.letters]
        for team in evaluation.scored_teams
        for model in team.models
    }
    highest = max((score for row in scores.values() for score in row), default=Decimal(0)) or Decimal(1)

    def opacities(team: TeamResult, model: str) -> list[float]:
        """Return how dark each letter's cell is: 0 for a score of 0, 1 for the highest of all."""
        return [
            FAINTEST + (1 - FAINTEST) * float(score / highest) ** 0.5 if score else 0
            for score in scores[team.name, model]
        ]

    for name in PLOTS:
        markup = templates.get_template(f"{name}.j2").render(
            teams=evaluation.scored_teams,
            models=list(evaluation.params.models),
            letters=evaluation.params.competition.characters,
            opacities=opacities,
        )
        write_text(folder / name, printable_text(markup) + "\n")
