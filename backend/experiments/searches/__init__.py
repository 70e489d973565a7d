"""Searches: Optuna chooses the next configuration of an experiment, and stops runs that fall behind.

The tables are the truth. Optuna's study is built from them, in memory, for each decision, and a decision is
one transaction: a process that dies between two of them has lost and doubled nothing.
"""
