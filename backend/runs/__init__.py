"""Runs: their lifecycle, their record, their HTTP routes."""
