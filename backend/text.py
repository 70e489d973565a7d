"""Text that both databases accept and that a line of output may carry."""


def clean_text(text: str) -> str:
    """`text` without NUL, which Postgres refuses, and with lone surrogates, which UTF-8 lacks, as `?`."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
