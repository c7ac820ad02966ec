"""Reinforcement-learning environments for verifiers. No other package imports it."""
