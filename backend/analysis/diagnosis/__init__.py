"""Diagnosis of runs: whether the goal fell, when, what broke first, and what to try against it.

Pure functions of series, the same for a run that trains, one that has ended and a log of another trainer:
`diagnose` in `diagnose.py`. Nothing here foretells: a sign without a fall of the goal is a warning.
"""
