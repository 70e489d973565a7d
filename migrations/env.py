"""Runs the migrations on the connection that `backend.storage.migrate` hands over, inside its transaction."""

from alembic import context

from backend.storage.models import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transaction_per_migration=False,
)
context.run_migrations()
