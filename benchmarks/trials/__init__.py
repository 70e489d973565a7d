"""Trials of remedies on runs that were broken on purpose: does the remedy help, and is it told when not?"""
