"""Metric points: NaN as a value, idempotent writing, faithful reading."""
