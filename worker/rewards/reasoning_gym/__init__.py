"""Safe replacements for the checkers of reasoning_gym that evaluate text, and their parsers."""
