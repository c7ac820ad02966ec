"""The name under which the package `verifiers` finds the taskset of level generation: `vf-eval pcgeval-levels`."""

from pcgeval.rl.level_environment import LevelEnv, LevelTaskset

__all__ = ["LevelEnv", "LevelTaskset"]
