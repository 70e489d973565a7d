"""The reinforcement learning objective: pure functions that compute a loss and its diagnostics from
log-probabilities, rewards and masks.
"""
