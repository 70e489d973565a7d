"""Backup and restore of one installation, each as one command."""
