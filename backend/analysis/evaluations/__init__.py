"""Results of evaluations: held-out sets and suites of runs, by checkpoint."""
