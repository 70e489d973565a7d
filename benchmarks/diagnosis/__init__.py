"""Suite of runs that break on purpose, and of healthy ones: how often diagnosis is right."""
