"""Workers: who is there, on which device, and what each runs."""
