"""The taskset of level generation under the name that verifiers finds it by: `vf-eval pcgeval-levels`."""

from pcgeval.rl.level_environment import LevelEnv, LevelTaskset

__all__ = ["LevelEnv", "LevelTaskset"]
