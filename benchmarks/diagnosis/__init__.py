"""Benchmark of the diagnosis on runs that are broken on purpose and on healthy runs."""
