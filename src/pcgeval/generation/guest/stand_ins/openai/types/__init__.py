"""Offer types of the openai package that programs annotate with."""
