"""Prompts and completions of other trainers as plain text."""

MAX_TEXT = 100_000
"""Characters of one prompt or completion; the rest is cut and reported."""
