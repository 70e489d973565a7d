"""Names of checkpoints and of their files: the only ones under which anything from outside is written."""

import re

CHECKPOINT_NAME = re.compile(r"s(\d{6,10})-a(\d{1,9})")
"""A checkpoint's directory: its step and the attempt that wrote it."""

FILE_NAME = re.compile(r"(trainer/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,190}\.(safetensors|json|jinja|model|txt)")
"""A file below it. None is code or a pickle."""


def age_order(name: str) -> tuple[int, int]:
    """Step and attempt of a checkpoint's name, by which names are sorted; (-1, -1) for another name."""
    match = CHECKPOINT_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else (-1, -1)
