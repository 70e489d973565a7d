"""The formats of files that may be uploaded, which are recognised by the end of the file name."""

from backend.base.errors import FieldError, InvalidRequest
from backend.base.redaction import refuse_secrets
from backend.base.text import clean_text
from backend.catalog.datasets.tables import KINDS as TABLES
from backend.catalog.datasets.unpacking import KINDS as LINES

UPLOAD_EXTENSIONS = (*LINES, *TABLES)


def file_kind(name: str) -> str:
    """Return the extension that defines the format of a file. Raises InvalidRequest for other names."""
    refuse_secrets(name, "name")
    if name != clean_text(name):
        raise InvalidRequest([FieldError("name", "contains NUL or an unpaired surrogate")])
    kind = next((kind for kind in UPLOAD_EXTENSIONS if name.lower().endswith(kind)), None)
    if kind is None:
        extensions = f"{', '.join(UPLOAD_EXTENSIONS[:-1])} or {UPLOAD_EXTENSIONS[-1]}"
        reason = f"must end with {extensions} (no archives), got {name[-40:]!r}"
        raise InvalidRequest([FieldError("name", reason)])
    return kind
