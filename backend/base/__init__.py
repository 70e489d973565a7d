"""Shared base of all packages: settings, errors, logs, redaction, the sandbox."""
