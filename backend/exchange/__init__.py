"""What comes in from other programs and goes out to them: imports, pushes, exports, archives."""
