"""Checkers of reasoning_gym tasks whose own ones give the answer to an evaluator, and the parsers in its place."""
