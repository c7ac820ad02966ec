"""Millions of levels: responses in JSON lines or Parquet in, the table of levels out. It needs no competition."""
