"""Shared foundations: errors, files, parameters, paths, trials."""
