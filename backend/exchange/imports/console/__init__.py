"""Read metrics from the printed output of a trainer, and find their steps."""
