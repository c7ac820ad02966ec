"""Grade the leaves of a rubric: `JUDGES` names the judges that params.yaml, commands and environments know.

It imports no server of models but through `llm`, and no DVC.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class JudgeKind:
    """One way to grade leaves: where a leaf's score comes from, and what the judge looks at."""

    source: str  # the origin of a leaf's score, as commands and docs show it
    reads_submission: bool  # whether it looks at the submission, so that results of reproduce.sh matter


JUDGES = {
    "simple": JudgeKind("a language model; a leaf with a check is decided by the check", reads_submission=True),
    "checks": JudgeKind("the check that the leaf names; other leaves have no grade", reads_submission=True),
    "human": JudgeKind("a person's YAML file of grades", reads_submission=False),
    "random": JudgeKind("a seeded coin", reads_submission=False),
    "dummy": JudgeKind("always 1", reads_submission=False),
}
