"""Compare the trials of one model and team with each other: the diversity of each letter."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import step_folder
from pcgeval.core.params import load_params
from pcgeval.similarity.diversity import diversity_step


def main(model: str, team: str) -> None:
    """Write data/diversity/<model>/<team>."""
    params = load_params()
    similarity, diversity = step_folder("similarity", model, team), step_folder("diversity", model, team)
    competition = params.competition
    diversity_step(similarity, diversity, team, competition.trials, competition.characters, params.diversity.vectors)


if __name__ == "__main__":
    run_stage(main)
