"""Breakdown of a change of a metric into categories of completions."""
