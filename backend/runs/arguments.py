"""Command-line arguments of the command `runs`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    parser.add_argument(
        "--query", default="", help="such as 'preset = dapo and eval/accuracy > .5' (docs/queries.md)"
    )
    parser.add_argument(
        "--sort", default="-created_at", help="field, summary.<metric> or config.<path>, - for descending"
    )
    parser.add_argument("--limit", type=int, default=50, help="maximum number of runs; 0 for all")
    parser.add_argument("--archived", action="store_true", help="archived runs instead of the others")
    parser.add_argument("--trash", action="store_true", help="runs in the trash instead of the others")
    parser.add_argument("--json", action="store_true", help="one run per line, as GET /api/v1/runs shows it")
