"""Experiments: variants x seeds and their statistics."""
