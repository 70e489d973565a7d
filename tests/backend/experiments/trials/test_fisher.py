"""Tests of Fisher's exact test, by hand and by its properties."""

import pytest

from backend.experiments.trials.fisher import fisher


@pytest.mark.parametrize(
    ("arm", "control", "p"),
    [
        ((0, 5), (5, 5), 1 / 252),
        ((0, 3), (3, 3), 1 / 20),
        ((4, 5), (5, 5), 126 / 252),
        ((5, 5), (5, 5), 1.0),
        ((0, 5), (0, 5), 1.0),
        ((1, 4), (3, 4), 17 / 70),  # the lady tasting tea: at most one of three wrong cups
    ],
)
def test_small_tables_by_hand(arm, control, p):
    assert fisher(*arm, *control) == pytest.approx(p, rel=1e-12)
