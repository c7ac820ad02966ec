"""Rubric leaves that a program decides, and the evidence they read. It imports no model and no judge."""
