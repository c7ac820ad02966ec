"""Submissions: load, inspect, validate and file them."""
