"""The ablation matrix: variants x metrics with intervals, paired differences, corrections and power."""
