"""All operations of an import's sandbox."""

from backend.exchange.imports import (
    archive_operations,
    database_operations,
    operations,
    parquet_operations,
    torch_operations,
)

OPERATIONS = {
    **operations.OPERATIONS,
    **parquet_operations.OPERATIONS,
    **database_operations.OPERATIONS,
    **archive_operations.OPERATIONS,
    **torch_operations.OPERATIONS,
}
