"""The ablation matrix: variants by metrics, with intervals, paired differences, corrections and power."""
