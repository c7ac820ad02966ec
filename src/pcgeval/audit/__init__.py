"""Trace each line of the ranking back to its inputs."""
