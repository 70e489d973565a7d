"""The database and the artifact store: tables, engines and the binary formats of stored data."""
