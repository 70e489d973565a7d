"""Runs that clients of other trainers push while they train."""
