"""Runs that clients of other trainers push during training."""
