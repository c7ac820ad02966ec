"""From stability, similarity and diversity to scores, the official files and the ranking. It measures nothing."""
