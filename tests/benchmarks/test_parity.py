"""The parity check: its pairs are settings that exist."""

import pytest

from backend.config.objective import Objective
from benchmarks.parity.cases import CASES, DIFFERENT, every_combination

pytestmark = pytest.mark.nightly


def test_every_pair_of_the_parity_check_is_an_objective():
    for case in (*CASES, *DIFFERENT, *every_combination()):
        assert Objective.model_validate(case.ours)
