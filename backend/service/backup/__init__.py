"""Back up and restore an installation, each with one command."""
