"""Trials of remedies: forks of one checkpoint, without change and with each remedy, and a verdict on them.

A remedy is a hypothesis. `plan.py` decides where the forks begin and what each arm changes, `launch.py`
queues them as one experiment, and `verdict.py` counts in how many runs of each arm the fall recurred.
"""
