"""Exchange with other programs: imports, pushes, exports, archives."""
