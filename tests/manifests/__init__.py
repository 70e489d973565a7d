"""Tests of the manifests of pilots against the schemas of their clusters."""
