"""Diagnosis of runs: whether and when the goal fell, what changed first, and which remedy to try.

`diagnose` in `diagnose.py` is a pure function of a log. It is the same for runs that are training, runs that
have ended and logs of other trainers. It makes no predictions: a sign without a fall of the goal is only a
warning.
"""
