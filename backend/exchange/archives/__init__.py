"""Archives of runs: one tar file with all data that an installation has about a run."""
