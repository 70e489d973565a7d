"""Datasets that users upload, and the operator's files in DATASETS_DIR."""
