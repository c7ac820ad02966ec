"""Stage generate: from a submission to one response for each trial. It imports no evaluator and no scores."""
