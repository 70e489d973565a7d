"""Valid names of checkpoints and their files; nothing from outside is written under any other name."""

import re

CHECKPOINT_NAME = re.compile(r"s(\d{6,10})-a(\d{1,9})")
"""Name of a checkpoint's directory: its step and the attempt that wrote it."""

FILE_NAME = re.compile(r"(trainer/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,190}\.(safetensors|json|jinja|model|txt)")
"""Name of a file in a checkpoint's directory. No such file is code or a pickle."""


def age_order(name: str) -> tuple[int, int]:
    """Return step and attempt from a checkpoint's name as a sort key; (-1, -1) for any other name."""
    match = CHECKPOINT_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else (-1, -1)
