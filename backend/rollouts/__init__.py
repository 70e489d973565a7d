"""Rollouts: the completions of a run with their text, rewards and token data."""
