"""Classify the level pictures of one model and team: letter probabilities and embeddings."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import step_folder, trials
from pcgeval.core.params import load_params
from pcgeval.similarity.step import classify_step


def main(model: str, team: str) -> None:
    """Write data/similarity/<model>/<team>."""
    params = load_params()
    images, similarity = step_folder("images", model, team), step_folder("similarity", model, team)
    classify_step(images, similarity, team, trials(params), params.similarity)


if __name__ == "__main__":
    run_stage(main)
