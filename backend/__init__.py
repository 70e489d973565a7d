"""The service: HTTP API, record of runs, queue. Imports no torch."""
