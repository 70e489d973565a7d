"""What a run can be launched with: policies and datasets."""
