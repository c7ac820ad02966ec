"""Classify the pictures of the levels: letter probabilities and embeddings."""

from pcgeval.pipeline import classify, run_stage

if __name__ == "__main__":
    run_stage(classify)
