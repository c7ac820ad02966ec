"""Grading a submission by a tree of weighted criteria, as PaperBench does."""
