"""Imports: logs of other trainers become runs that are listed, drawn and compared like any other."""
