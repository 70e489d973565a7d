"""Benchmark of the bytes per metric point, compared with other stores."""
