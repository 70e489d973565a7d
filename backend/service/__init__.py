"""The running service: its processes, command line, live updates, maintenance, backups and diagnostics."""
