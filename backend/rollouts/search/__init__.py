"""Search for words, phrases and strings in completions."""
