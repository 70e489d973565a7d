"""Fisher's exact test, by hand and by its properties."""

from math import comb

import pytest

from backend.experiments.trials.fisher import fisher
from backend.experiments.trials.plan import least_p
from backend.experiments.trials.sentences import p_value


@pytest.mark.parametrize(
    ("arm", "control", "p"),
    [
        ((0, 5), (5, 5), 1 / 252),
        ((0, 3), (3, 3), 1 / 20),
        ((4, 5), (5, 5), 126 / 252),
        ((5, 5), (5, 5), 1.0),
        ((0, 5), (0, 5), 1.0),
        ((1, 4), (3, 4), 17 / 70),  # the lady tasting tea: one or none of three wrong cups
    ],
)
def test_small_tables_by_hand(arm, control, p):
    assert fisher(*arm, *control) == pytest.approx(p, rel=1e-12)


def test_all_chances_add_up_and_more_hits_are_never_less_likely():
    for count, other_count, together in ((5, 5, 4), (3, 7, 6), (2, 9, 11), (6, 2, 1)):
        hits = range(max(0, together - other_count), min(count, together) + 1)
        p = [fisher(hit_count, count, together - hit_count, other_count) for hit_count in hits]
        assert p == sorted(p)
        assert p[-1] == pytest.approx(1.0)
        assert p[0] * comb(count + other_count, together) == pytest.approx(
            round(p[0] * comb(count + other_count, together))
        )


def test_the_least_p_is_that_of_the_clearest_result():
    for seeds in range(1, 21):
        assert least_p(seeds) == pytest.approx(fisher(0, seeds, seeds, seeds))
    assert least_p(3) <= 0.05 < least_p(2)


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (1 / 252, "p = .004"),
        (0.05, "p = .05"),
        (0.0543, "p = .054"),
        (0.5, "p = .50"),
        (1.0, "p = 1"),
        (1e-6, "p < .001"),
        (17 / 70, "p = .24"),
    ],
)
def test_p_is_written_as_papers_do(p, text):
    assert p_value(p) == text
