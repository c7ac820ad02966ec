"""Rubric leaves that a program decides, and the evidence they read."""
