"""Classify the pictures of the levels: letter probabilities and embeddings."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import classify

if __name__ == "__main__":
    run_stage(classify)
