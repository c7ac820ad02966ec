"""Show an evaluation on pages that need no network. It computes no score."""
