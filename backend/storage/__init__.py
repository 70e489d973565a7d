"""The database and the artifact store: tables, engines, the bytes of what they hold."""
