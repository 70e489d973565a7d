"""Rollouts: the exact text, token by token."""
