"""Grade a submission by a tree of weighted criteria, as PaperBench does. It imports no model, no torch and no DVC."""
