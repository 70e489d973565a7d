"""Imports: logs of other trainers become runs that are listed, plotted and compared like any other."""
