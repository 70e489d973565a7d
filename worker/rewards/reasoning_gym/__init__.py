"""Checkers in place of those of reasoning_gym that evaluate text, and the parsers that they read with."""
