"""Search in the completions of a run: words, phrases and strings."""
