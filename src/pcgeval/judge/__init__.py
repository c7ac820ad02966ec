"""Grade the leaves of a rubric. It imports no server of models but through `llm`, and no DVC."""
