"""Valid names of checkpoints and their files. Untrusted files are never written under other names."""

import re

CHECKPOINT_NAME_PATTERN = re.compile(r"s(\d{6,10})-a(\d{1,9})")
"""Pattern of a checkpoint directory's name, which has the step and the attempt that wrote it."""

FILE_NAME_PATTERN = re.compile(
    r"(trainer/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,190}\.(safetensors|json|jinja|model|txt)"
)
"""Pattern of a file's name in a checkpoint's directory. Files of these types cannot contain code."""


def checkpoint_age_key(name: str) -> tuple[int, int]:
    """Return (step, attempt) of a checkpoint's name as a sort key, or (-1, -1) if the name is invalid."""
    match = CHECKPOINT_NAME_PATTERN.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else (-1, -1)
