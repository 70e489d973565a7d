"""What every other room may use: settings, errors, logs, redaction, the sandbox."""
