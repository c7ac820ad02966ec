"""The name under which the package `verifiers` finds the taskset of paper reproduction: `vf-eval pcgeval-papers`."""

from pcgeval.rl.paper_environment import PaperEnv, PaperTaskset

__all__ = ["PaperEnv", "PaperTaskset"]
