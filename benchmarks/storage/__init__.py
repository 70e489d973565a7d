"""Bytes a metric point takes, beside other stores."""
