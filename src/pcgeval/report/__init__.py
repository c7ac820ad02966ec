"""Show an evaluation on one page, without scripts, readable offline."""
