"""Workers, their devices and the runs that they train."""
