"""The formats of files that may be uploaded, which are recognised by the end of the file name."""

from backend.base.errors import FieldError, InvalidRequest
from backend.base.redaction import refuse_secrets
from backend.base.text import clean_text
from backend.catalog.datasets.tables import KINDS as TABLES
from backend.catalog.datasets.unpacking import KINDS as LINES

KINDS = (*LINES, *TABLES)


def file_kind(name: str) -> str:
    """Return the extension that defines the format of a file. Raises InvalidRequest for other names."""
    refuse_secrets(name, "name")
    if name != clean_text(name):
        raise InvalidRequest([FieldError("name", "contains NUL or an unpaired surrogate")])
    kind = next((kind for kind in KINDS if name.lower().endswith(kind)), None)
    if kind is None:
        reason = f"must end with {', '.join(KINDS[:-1])} or {KINDS[-1]} (no archives), got {name[-40:]!r}"
        raise InvalidRequest([FieldError("name", reason)])
    return kind
