"""Searches: Optuna chooses the next configuration of an experiment, and stops runs that fall behind.

The database holds the state. For each decision, Optuna's study is rebuilt from it in memory, and each
decision is one transaction, so a process that is killed in between does not lose or repeat anything.
"""
