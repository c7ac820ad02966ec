"""The guess that stands in where the model judge could not grade one leaf; it never passes for a rubric's score."""

from pcgeval.rubric.grades import HEURISTIC, GradedTask, JudgeOutput, extract_leaf_grades

REPRODUCED = 0.5  # PaperBench's figures
NOT_REPRODUCED = 0.2


def heuristic_output(tree: GradedTask, *, has_reproduced: bool) -> JudgeOutput:
    """Return the guess: 0.5 if reproduce.sh is there and succeeded, else 0.2; the leaves keep their reasons."""
    reasons = [leaf.explanation for leaf in extract_leaf_grades(tree) if not leaf.valid_score]
    first = max(set(reasons), key=lambda reason: (reasons.count(reason), reason))
    ran = "reproduce.sh succeeded" if has_reproduced else "no reproduce.sh succeeded"
    guess = REPRODUCED if has_reproduced else NOT_REPRODUCED
    warning = f"The grading could not run: {first} The score {guess} is only a guess, made because {ran}."
    return JudgeOutput(HEURISTIC, tree, guess=guess, warnings=(warning,))
