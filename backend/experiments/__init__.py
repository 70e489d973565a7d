"""Experiments: groups of runs by variant and seed, and their statistics."""
