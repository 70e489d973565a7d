"""Webhook: events of runs, posted to an address of the operator's choice, signed and tried again."""
