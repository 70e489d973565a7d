"""Environments behind servers that speak the protocol of OpenEnv."""
