"""Artifacts of runs: files of checkpoints, on this machine and in the artifact store."""
