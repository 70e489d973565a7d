"""The run schema, shared by API, browser form and trainer. Imports pydantic only."""
