"""Safe replacements of reasoning_gym's checkers that evaluate text, and their parsers."""
