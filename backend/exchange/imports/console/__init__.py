"""Text that a trainer prints: its lines of metrics, and the steps at which they stand."""
