"""Datasets that users upload, and the files of DATASETS_DIR next to them."""
