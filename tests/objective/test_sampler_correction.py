"""Tests of weights against the mismatch of sampler and trainer, on fixture F."""

import pytest

from backend.config import knobs
from backend.config.objective import Objective
from tests.objective import fixture_f as f

TOKEN_RHO = [1.0513, 1, 1, 2.7183, 1, 0.5488, 1, 1, 1, 1.0513]
EXPECTED_WEIGHTS = [
    (knobs.TokenTis(cap=2), [1.0513, 1, 1, 2, 1, 0.5488, 1, 1, 1, 1.0513]),
    (knobs.TokenMask(low=0.5, high=2), [1.0513, 1, 1, 0, 1, 0.5488, 1, 1, 1, 1.0513]),
    (knobs.SequenceTis(level="product", cap=2), [1.0513] * 2 + [2] * 3 + [0.5488] + [1.0513] * 4),
    (knobs.SequenceTis(level="geo", cap=2), [1.0253] * 2 + [1.3956] * 3 + [0.5488] + [1.0126] * 4),
    (knobs.SequenceMask(low=0.5, high=2), [1.0513] * 2 + [0] * 3 + [0.5488] + [1.0513] * 4),
    (knobs.SequenceMask(level="geo", low=0, high=1.3), [1.0253] * 2 + [0] * 3 + [0.5488] + [1.0126] * 4),
    (knobs.SequenceK3(threshold=0.2), [1] * 2 + [0] * 3 + [1] * 5),
    (knobs.GeoFilter(low=0.9, high=1.2), [1.0513, 1, 0, 0, 0, 0, 1, 1, 1, 1.0513]),
]


@pytest.mark.parametrize(("correction", "weights"), EXPECTED_WEIGHTS)
def test_weights_match_a_calculation_by_hand(correction, weights):
    result, _ = f.run(Objective(correction=correction))
    assert result.per_token["correction"][f.MASK].tolist() == pytest.approx(weights, abs=6e-5)


def test_the_mismatch_is_measured_with_the_weights_in_use():
    metrics = f.run(Objective(correction=knobs.TokenTis(cap=2)))[0].metrics.values()
    assert metrics["mismatch/ess"] == pytest.approx(0.9068, abs=6e-5)
    assert metrics["mismatch/chi2"] == pytest.approx(0.5901, abs=6e-5)
    assert metrics["mismatch/k3"] == pytest.approx(0.0870, abs=6e-5)
    assert metrics["mismatch/rho_mean"] == pytest.approx(sum(TOKEN_RHO) / 10, abs=6e-5)
    assert metrics["mismatch/rho_max"] == pytest.approx(2.7183, abs=6e-5)
    assert metrics["mismatch/masked_frac"] == pytest.approx(0.1)
    assert metrics["mismatch/prob_diff_max"] == pytest.approx(0.6703 - 0.3679, abs=6e-5)


def test_without_a_correction_the_mismatch_is_still_measured():
    metrics = f.run(Objective())[0].metrics.values()
    assert metrics["mismatch/chi2"] == pytest.approx(0.5901, abs=6e-5)
    assert "mismatch/masked_frac" not in metrics


def test_without_the_samplers_log_probs_there_is_no_measurement():
    metrics = f.run(Objective(), sampler_logprobs=None)[0].metrics.values()
    assert not [name for name in metrics if name.startswith("mismatch/")]


def test_a_correction_without_the_samplers_log_probs_is_refused():
    with pytest.raises(ValueError, match="needs sampler log-probabilities"):
        f.run(Objective(correction=knobs.TokenTis()), sampler_logprobs=None)


def test_the_mismatch_of_fixture_f_matches_a_calculation_by_hand():
    """Four of ten tokens differ: exp(-.5) - exp(-.55) = .0296, then .0855, .3024 and .0399."""
    metrics = f.run(Objective())[0].metrics.values()
    assert metrics["mismatch/prob_diff_mean"] == pytest.approx(0.04574, abs=6e-5)
    assert metrics["mismatch/prob_diff_max"] == pytest.approx(0.3024, abs=6e-5)
    assert metrics["mismatch/k1"] == pytest.approx(-0.05, abs=6e-5)
    assert metrics["mismatch/k3"] == pytest.approx(0.0870, abs=6e-5)
    assert "mismatch/masked_frac" not in metrics


def test_with_the_sampler_as_old_policy_the_mismatch_is_part_of_the_ratio():
    objective = Objective(ratio=knobs.TokenRatio(old="sampler"))
    result, _ = f.run(objective)
    # the second token of the second completion: exp(0.50 drift + 1.00 mismatch)
    assert result.per_token["ratio"][1, 1].item() == pytest.approx(4.4817, abs=6e-5)
    # it is measured nevertheless, against the trainer's weights at the start of the step
    assert result.metrics.values()["mismatch/rho_max"] == pytest.approx(2.7183, abs=6e-5)
