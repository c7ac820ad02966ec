"""Classify the level pictures of one model and team: letter probabilities and embeddings."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import stage_dir, trials
from pcgeval.core.params import load_params
from pcgeval.core.spread import chosen_scheduler
from pcgeval.similarity.stage import classify_stage


def main(model: str, team: str) -> None:
    """Write data/similarity/<model>/<team>."""
    params = load_params()
    images, similarity = stage_dir("images", model, team), stage_dir("similarity", model, team)
    classify_stage(images, similarity, team, trials(params), params.similarity, scheduler=chosen_scheduler(params))


if __name__ == "__main__":
    run_stage(main)
