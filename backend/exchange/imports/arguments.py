"""Command-line arguments of the command `import`."""

import argparse

NAMES = {
    "name": "name of the run",
    "experiment": "name of its experiment (default: the file's name)",
    "variant": "runs of one variant in one experiment count as its seeds (default: the run's name)",
    "seed": "the run's seed",
    "step": "column that counts the steps (default: the best guess)",
    "run": "one run of the file, as --dry-run lists them (default: all of them)",
    "into": "id of an imported run that gets the completions of the file",
    "format": "such as csv, parquet or sqlite (docs/importing.md) (default: detected from the content)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    parser.add_argument("files", nargs="+", help="the log; several files, or a directory of logs")
    parser.add_argument("--dry-run", action="store_true", help="say what would be imported, store nothing")
    for name, help_text in NAMES.items():
        parser.add_argument(f"--{name}", help=help_text)
