"""The objective: pure functions from log-probabilities, rewards and masks to a loss and its diagnostics."""
