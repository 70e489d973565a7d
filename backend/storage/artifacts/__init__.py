"""Files of checkpoints on this machine and in the artifact store."""
