"""Prompts and completions of other trainers as plain text."""

MAX_TEXT_CHARACTERS = 100_000
"""Maximum number of characters of a prompt or completion; a longer text is cut and reported."""
