"""Archives of runs: one tar file with all that an installation knows about a run."""
