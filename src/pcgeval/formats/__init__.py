"""The files of a competition, a typed model each: params, paths, trials, failures, results. It imports core alone."""
