"""Asynchronous training against synchronous: throughput, mismatch and accuracy side by side."""
