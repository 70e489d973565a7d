"""Exports of trained models: with a model card, to the hub, or to a server."""
