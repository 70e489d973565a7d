"""All operations of an import's sandbox."""

from backend.exchange.imports import (
    archive_operations,
    operations,
    parquet_operations,
    torch_operations,
    trackio_operations,
)

OPERATIONS = {
    **operations.OPERATIONS,
    **parquet_operations.OPERATIONS,
    **trackio_operations.OPERATIONS,
    **archive_operations.OPERATIONS,
    **torch_operations.OPERATIONS,
}
