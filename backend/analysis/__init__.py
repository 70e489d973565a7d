"""What went wrong in a run and how well it did: diagnosis and evaluations."""
