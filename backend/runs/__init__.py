"""The lifecycle, the records and the HTTP routes of runs."""
