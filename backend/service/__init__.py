"""The running service: processes, command line, live pages, maintenance, backup, doctor."""
