"""Environments to evaluate and train agents in, for the package `verifiers`, which no other package imports."""
