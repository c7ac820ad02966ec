"""From stability, similarity and diversity to scores, the official result files and the ranking."""
