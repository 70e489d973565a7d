"""Policies and datasets with which a run can be launched."""
