"""Webhook: events of runs are posted to an address that the operator chooses, signed and with retries."""
