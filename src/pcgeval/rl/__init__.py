"""Reinforcement-learning environments for verifiers."""
