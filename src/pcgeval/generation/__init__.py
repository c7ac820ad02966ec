"""Stage generate: from a submission to one response for each trial."""
