"""Manifests of pilots against the schemas of what they are for."""
