"""Diagnosis of runs, and results of evaluations."""
