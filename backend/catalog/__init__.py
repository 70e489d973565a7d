"""The policies and datasets that runs can use."""
