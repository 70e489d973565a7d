"""Bytes a metric point and a rollout take, beside other stores."""
