"""Exchange data with other programs: imports, pushes, exports and archives."""
