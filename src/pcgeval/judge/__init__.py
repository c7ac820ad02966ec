"""Stage grade: a language model judges the leaves of a rubric."""
