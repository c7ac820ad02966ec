"""Asking language models: one small protocol, and the backends that serve it."""
