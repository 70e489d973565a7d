"""Tests of the comparison of runs by a metric whose scale depends on their rewards."""

import pytest

from backend.experiments.comparable import incomparable_reasons
from backend.storage.models import Run

OWN_REWARDS = {"rewards": [{"name": "correctness", "weight": 1.0}]}
OTHER_REWARDS = {"rewards": [{"name": "correctness", "weight": 2.0}]}


@pytest.mark.parametrize(
    ("first", "second", "reasons"),
    [
        (("", OWN_REWARDS), ("", OWN_REWARDS), []),
        (("", OWN_REWARDS), ("", OTHER_REWARDS), ["rewards.correctness.weight"]),
        (("", OWN_REWARDS), ("trl", {}), ["origin"]),
        (("trl", {}), ("verl", {}), ["origin"]),
        (("trl", {"rewards": 1}), ("trl", {"rewards": 2}), []),
    ],
)
def test_rewards_of_two_origins_have_two_scales(first, second, reasons):
    runs = [Run(origin=origin, config=config) for origin, config in (first, second)]
    assert incomparable_reasons("reward/mean", *runs) == reasons
    assert incomparable_reasons("length/mean", *runs) == []
