"""Code that all other packages share: settings, errors, logging, redaction of secrets and the sandbox."""
