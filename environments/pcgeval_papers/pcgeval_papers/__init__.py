"""The taskset of paper reproduction under the name that verifiers finds it by: `vf-eval pcgeval-papers`."""

from pcgeval.rl.paper_environment import PaperEnv, PaperTaskset

__all__ = ["PaperEnv", "PaperTaskset"]
