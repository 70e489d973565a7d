"""Rules that refuse contradictory sections of a config and warn about doubtful ones."""
