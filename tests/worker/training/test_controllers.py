"""Tests of coefficients that follow measured values."""

import pytest
import torch

from backend.base.errors import InvalidConfig
from backend.config import knobs
from backend.config.objective import Objective
from worker.training.controllers import EntropyControl, KlControl

DUAL_KL = knobs.KlK3(coef=0.1, controller=knobs.DualController(target=0.01))
MASK = torch.tensor([[True, True, False], [True, False, False]])
NAN = float("nan")


def move_control(control, *measured):
    """Update the control as after a step with these measurements (values and mask)."""
    for values, mask in measured:
        control.observe(values, mask)
    control.move()


def test_the_mean_over_tokens_decides_and_padding_does_not():
    control = KlControl(Objective(kl=DUAL_KL))
    move_control(control, (torch.tensor([[0.02, 0.02, NAN], [0.02, NAN, NAN]]), MASK))
    assert control.coefficients(["math"]).tolist() == [0.2]
    move_control(control, (torch.tensor([[0.006, 0.006, NAN], [0.006, NAN, NAN]]), MASK))
    move_control(control, (torch.tensor([[0.012, 0.012, NAN], [0.012, NAN, NAN]]), MASK))
    assert control.coefficients(["math"]).tolist() == [0.1]


def test_if_the_kl_is_a_sum_the_target_is_per_completion():
    control = KlControl(Objective(kl=DUAL_KL.with_(aggregation="seq_sum")))
    move_control(
        control, (torch.tensor([[0.008, 0.008, NAN], [0.008, NAN, NAN]]), MASK)
    )  # 0.012 per completion
    assert control.factor == 1
    move_control(control, (torch.tensor([[0.02, 0.02, NAN], [0.02, NAN, NAN]]), MASK))
    assert control.factor == 2


def test_the_horizon_counts_completions():
    knob = knobs.KlK3(coef=0.2, controller=knobs.HorizonController(target=6, horizon=10_000))
    control = KlControl(Objective(kl=knob.with_(aggregation="seq_sum")))
    move_control(control, (torch.full((256, 1), 8.0), torch.ones(256, 1, dtype=torch.bool)))
    assert control.coefficients(["math"]).item() == pytest.approx(0.2010, abs=6e-5)


def test_a_domain_that_only_a_prompt_names_is_refused_with_a_reason():
    control = KlControl(Objective(kl=DUAL_KL.with_(coef={"math": 0.1})))
    with pytest.raises(InvalidConfig, match="nothing for the domain 'algebra'"):
        control.coefficients(["math", "algebra"])


ADAPTIVE_OBJECTIVE = Objective(entropy=knobs.AdaptiveEntropy(target=1.0, step=0.005, coef=0.01))


def test_the_entropy_of_sampled_tokens_moves_the_weight_of_the_next_step():
    control = EntropyControl(ADAPTIVE_OBJECTIVE)
    low, high = torch.tensor([[0.9, 0.9, NAN], [0.9, NAN, NAN]]), torch.full((2, 3), 1.5)
    used_weights = []
    for entropy in (low, low, high, low):
        used_weights.append(control.weights(entropy, MASK))
        move_control(control, (entropy, MASK))
    assert [weights[0].item() for weights in used_weights if weights is not None] == pytest.approx(
        [0.01, 0.015, 0, 0.015]
    )
    assert control.coef == pytest.approx(0.02)


def test_several_epochs_of_a_step_move_a_coefficient_once():
    """The mean over both epochs is 0.02; the second epoch alone would not have moved the coefficient."""
    control = KlControl(Objective(kl=DUAL_KL))
    high, low = torch.full((2, 3), 0.03), torch.full((2, 3), 0.01)
    move_control(control, (high, MASK), (low, MASK))
    assert control.factor == 2
    control.move()
    assert control.factor == 2
    entropy = EntropyControl(ADAPTIVE_OBJECTIVE)
    move_control(entropy, *[(torch.zeros(2, 3), MASK)] * 3)
    assert entropy.coef == pytest.approx(0.015)
    entropy.move()
    assert entropy.coef == pytest.approx(0.015)


@pytest.mark.parametrize("value", [NAN, float("inf")])
@pytest.mark.parametrize(
    "controller", [knobs.DualController(target=1), knobs.HorizonController(target=1, horizon=2)]
)
def test_nonfinite_values_move_nothing(controller, value):
    control = KlControl(Objective(kl=knobs.KlK3(controller=controller)))
    move_control(control, (torch.full((2, 3), value), MASK))
    assert control.factor == 1
    entropy = EntropyControl(ADAPTIVE_OBJECTIVE)
    move_control(entropy, (torch.full((2, 3), value), MASK))
    assert entropy.coef == 0.01


def test_a_fixed_bonus_has_no_state():
    control = EntropyControl(Objective(entropy=knobs.EntropyBonus()))
    assert control.parts == {}
    assert control.weights(torch.zeros(2, 3), MASK) is None
    restored_control = EntropyControl(ADAPTIVE_OBJECTIVE)
    restored_control.parts["entropy"].restore({"coef": 0.5}, {})
    assert restored_control.coef == 0.5
