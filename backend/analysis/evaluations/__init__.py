"""Results of held-out evaluations and suites."""
