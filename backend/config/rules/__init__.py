"""Combinations of sections that are refused, each with its reason, and doubtful ones."""
