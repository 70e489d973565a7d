"""How the work of a step grows with its sizes."""
