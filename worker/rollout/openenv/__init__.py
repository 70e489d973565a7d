"""Environments on servers that implement the OpenEnv protocol."""
