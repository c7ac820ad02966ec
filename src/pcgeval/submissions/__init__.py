"""Submissions: load, inspect, validate and file them. It asks no model and runs no program of a team."""
