"""Archives of runs: a tar file with all data that an installation has about a run."""
