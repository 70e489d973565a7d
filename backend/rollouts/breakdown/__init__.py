"""Breakdown of a metric's change into categories of completions."""
