"""Command-line arguments of the command `upload`."""

import argparse

COLUMNS = {
    "prompt-field": "column of the question; a dot leads into an object",
    "answer-field": "column of the answer, or of the question if conversations end with the answer",
    "answer-after": "mark that the answer follows, e.g. ####",
    "answer-form": "text, or boxed: the last box is the answer",
}


def add_arguments(upload: argparse.ArgumentParser) -> None:
    """Add the arguments of the command `upload` to its parser."""
    upload.add_argument("file", help="a .jsonl, .jsonl.gz, .jsonl.zst, .parquet or .csv file")
    upload.add_argument("--dry-run", action="store_true", help="show the first rows, store nothing")
    for name, help_text in COLUMNS.items():
        upload.add_argument(f"--{name}", help=help_text)
