"""Compare the trials of one model and team with each other: the diversity of each letter."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import stage_dir
from pcgeval.core.params import load_params
from pcgeval.similarity.diversity import diversity_stage


def main(model: str, team: str) -> None:
    """Write data/diversity/<model>/<team>."""
    params = load_params()
    similarity, diversity = stage_dir("similarity", model, team), stage_dir("diversity", model, team)
    competition = params.competition
    diversity_stage(similarity, diversity, team, competition.trials, competition.characters, params.diversity.vectors)


if __name__ == "__main__":
    run_stage(main)
