"""The page that shows an evaluation to people: one file, without scripts, readable offline."""
