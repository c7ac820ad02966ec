"""The `simple` judge: a language model that is asked about one leaf at a time, in three calls (PaperBench)."""
