"""Tests of advantages, calculated by hand."""

import math

import pytest
import torch

from backend.config import knobs
from worker.objective.advantages import moving_average, probability_weighted_advantages
from worker.objective.batch import PolicyBatch
from worker.objective.estimation import estimate_advantages, estimate_against_tokens, whiten
from worker.objective.multi_reward import RewardTerms
from worker.objective.whitening import whitened_advantages

TWO_GROUPS = [[1, 1, 0, 0], [1, 0, 0, 0]]
NO_SCALE = knobs.NoScale()


def advantages(rewards, knob=None, *, unscored=(), average=0.0):
    scores = torch.tensor(rewards, dtype=torch.float64)
    is_scored = torch.ones_like(scores, dtype=torch.bool)
    for prompt, completion in unscored:
        is_scored[prompt, completion] = False
    return estimate_advantages(scores, is_scored, knob or knobs.GroupMean(), average=average)


def values(*arguments, **keywords):
    return advantages(*arguments, **keywords).advantages.tolist()


def test_one_group_is_in_units_of_its_sample_standard_deviation():
    assert values([[1, 1, 0, 0]])[0] == pytest.approx([0.8659, 0.8659, -0.8659, -0.8659], abs=6e-5)
    assert values([[1, 0, 0, 0]])[0] == pytest.approx([1.4997, -0.4999, -0.4999, -0.4999], abs=6e-5)


def test_the_population_standard_deviation_is_a_knob():
    knob = knobs.GroupMean(scale=knobs.GroupStd(ddof=0, eps=0))
    assert values([[1, 1, 0, 0]], knob)[0] == pytest.approx([1, 1, -1, -1])


def test_without_scale_a_group_is_only_centred():
    assert values([[1, 1, 0, 0]], knobs.GroupMean(scale=NO_SCALE)) == [[0.5, 0.5, -0.5, -0.5]]


def test_leave_one_out_compares_with_the_other_completions():
    assert values([[1, 1, 0, 0]], knobs.LeaveOneOut())[0] == pytest.approx([2 / 3, 2 / 3, -2 / 3, -2 / 3])
    assert values([[1, 0, 0, 0]], knobs.LeaveOneOut())[0] == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])


def test_opo_weighs_the_mean_of_a_group_by_tokens():
    rewards = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    lengths = torch.tensor([[6.0, 1.0, 1.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    is_scored = torch.ones_like(rewards, dtype=torch.bool)
    advantages = estimate_advantages(rewards, is_scored, knobs.OptimalBaseline(), lengths=lengths).advantages
    assert advantages.tolist() == [[0.25, -0.75, -0.75], [0, 0, 0]]
    is_scored[0, 2] = False
    advantages = estimate_advantages(rewards, is_scored, knobs.OptimalBaseline(), lengths=lengths).advantages
    assert advantages[0].tolist() == pytest.approx([1 / 7, -6 / 7, 0])
    with pytest.raises(ValueError, match="needs lengths of completions"):
        estimate_advantages(rewards, is_scored, knobs.OptimalBaseline())


def test_remax_subtracts_the_reward_of_the_greedy_completion():
    rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    is_scored = torch.ones_like(rewards, dtype=torch.bool)
    greedy_rewards = torch.tensor([1.0, 0.25, math.nan], dtype=torch.float64)
    advantages = estimate_advantages(
        rewards, is_scored, knobs.GreedyBaseline(), greedy=greedy_rewards
    ).advantages
    assert advantages.tolist() == [[0, -1], [0.75, 0.75], [0, 0]]
    with pytest.raises(ValueError, match="needs rewards of greedy completions"):
        estimate_advantages(rewards, is_scored, knobs.GreedyBaseline())


def test_the_optimal_token_baseline_weighs_by_the_energy_up_to_a_token():
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    is_scored = torch.ones_like(rewards, dtype=torch.bool)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    energies = torch.tensor([[1.0, 1.0, 9.0], [1.0, 5.0, 7.0]], dtype=torch.float64)
    advantages = estimate_against_tokens(rewards, is_scored, mask, energies).tolist()
    assert advantages == [[0.5, 0.75, 1.0], [-0.5, -0.25, 0.0]]
    is_scored[0, 1] = False
    advantages_alone = estimate_against_tokens(rewards, is_scored, mask, energies).tolist()
    assert advantages_alone == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


def test_maxrl_divides_by_the_groups_success_rate():
    knob = knobs.GroupMean(scale=knobs.MeanReward(eps=0))
    assert values([[1, 1, 0, 0], [1, 0, 0, 0]], knob) == [[1, 1, -1, -1], [3, -1, -1, -1]]
    assert values([[0, 0, 0, 0], [-1, 1, -1, -1]], knob) == [[0] * 4, [0] * 4]


def test_only_the_best_of_a_group_is_rewarded_by_its_lead():
    knob = knobs.BestOfGroup()
    assert values([[0, 1, 0.25, 0.5], [1, 1, 0, 0]], knob) == [[0, 0.5, 0, 0], [0, 0, 0, 0]]
    assert values([[-1, -2, -4, -3]], knob) == [[1, 0, 0, 0]]
    assert values([[1, 0.5, 0, 0]], knob, unscored=[(0, 1)]) == [[1, 0, 0, 0]]
    assert values([[1, 0.5]], knob, unscored=[(0, 1)]) == [[0, 0]]
    assert values([[1]], knob) == [[0]]


def test_lite_ppo_scales_by_the_whole_batch():
    advantages = values(TWO_GROUPS, knobs.GroupMean(scale=knobs.BatchStd()))
    assert advantages[0] == pytest.approx([0.9659, 0.9659, -0.9659, -0.9659], abs=6e-5)
    assert advantages[1] == pytest.approx([1.4489, -0.4830, -0.4830, -0.4830], abs=6e-5)


def test_scalerl_scales_by_the_deviation_of_the_centred_rewards():
    groups = [[1.0] * 7 + [0.0], [1.0] + [0.0] * 7]
    lite = values(groups, knobs.GroupMean(scale=knobs.BatchStd()))
    scalerl = values(groups, knobs.GroupMean(scale=knobs.BatchStd(of="centred_rewards")))
    assert (lite[0][0], lite[0][-1]) == pytest.approx((0.2420, -1.6941), abs=6e-5)
    assert (scalerl[0][0], scalerl[0][-1]) == pytest.approx((0.3659, -2.5610), abs=6e-5)


def test_the_batch_mean_is_one_baseline_for_all_prompts():
    assert values(TWO_GROUPS, knobs.BatchMean())[1] == pytest.approx([0.625, -0.375, -0.375, -0.375])


def test_a_moving_average_starts_at_zero_and_is_used_by_the_next_step():
    average = 0.0
    step_advantages = []
    for mean in (0.25, 0.5, 0.75):
        estimate = advantages([[mean, mean]], knobs.MovingAverage(), average=average)
        assert estimate.advantages.tolist()[0] == pytest.approx([mean - average] * 2)
        rewards = torch.tensor([[mean, mean]], dtype=torch.float64)
        average = moving_average(average, rewards, rewards >= 0, decay=knobs.MovingAverage().decay)
        step_advantages.append(average)
    assert step_advantages == pytest.approx([0.0250, 0.0725, 0.1403], abs=6e-5)


def test_without_baseline_the_reward_is_the_advantage():
    assert values([[1, 0]], knobs.NoBaseline()) == [[1, 0]]


def test_dividing_by_the_root_of_the_group_size_makes_sixteen_completions_weigh_four_times():
    rewards = [[1.0, 0.0] * 8]
    plain_values, rooted_values = values(rewards), values(rewards, knobs.GroupMean(group_sum="sqrt"))
    assert rooted_values[0] == pytest.approx([4 * a for a in plain_values[0]])


CENTRED_KNOBS = [knobs.GroupMean(), knobs.GroupMean(scale=NO_SCALE), knobs.LeaveOneOut()]


@pytest.mark.parametrize("knob", CENTRED_KNOBS)
def test_equal_rewards_give_zero_advantages(knob):
    assert values([[0.2] * 6], knob) == [[0] * 6]  # the float mean of six 0.2 is not 0.2


@pytest.mark.parametrize("knob", CENTRED_KNOBS)
def test_a_group_of_one_gets_zero(knob):
    assert values([[1.0], [0.0]], knob) == [[0], [0]]


def test_an_unscored_completion_gets_zero_and_affects_no_other():
    advantages = values([[1, 1, 0, 0, float("nan")]], unscored=[(0, 4)])
    assert advantages[0] == pytest.approx([0.8659, 0.8659, -0.8659, -0.8659, 0], abs=6e-5)


@pytest.mark.parametrize("scale", [knobs.GroupStd(), knobs.BatchStd()])
def test_constant_rewards_are_never_divided_by_epsilon(scale):
    assert values([[1.0, 1.0], [1.0, 1.0]], knobs.NoBaseline(scale=scale)) == [[0, 0], [0, 0]]


def test_reweighting_keeps_probable_tokens_and_mutes_rare_ones():
    old_logprobs = torch.tensor([[0.1, 0.5, 0.9]]).log()
    weighed = probability_weighted_advantages(torch.ones(1, 1), old_logprobs, alpha=0.3)
    assert weighed.tolist()[0] == pytest.approx([0.73, 0.85, 0.97])


def whitened_groups(scale, *, lengths, scope, unscored=(), **options):
    """Return the advantages of TWO_GROUPS with completions of these lengths."""
    knob = knobs.GroupMean(scale=scale, **options)
    estimate = advantages(TWO_GROUPS, knob, unscored=unscored).advantages
    is_scored = torch.ones(8, dtype=torch.bool)
    for prompt, completion in unscored:
        is_scored[4 * prompt + completion] = False
    lengths = torch.tensor(lengths).flatten().unsqueeze(1)
    batch = PolicyBatch(
        mask=torch.arange(int(lengths.max())) < lengths,
        advantages=estimate.flatten(),
        group_index=torch.tensor([0] * 4 + [1] * 4),
        scored=is_scored,
    )
    return whiten(batch, knob, scope=scope).advantages.tolist()


LENGTHS = [[2, 3, 1, 4], [1, 1, 2, 2]]


def test_magistral_whitens_the_completions_of_a_minibatch():
    advantages = whitened_groups(knobs.SeqWhiten(), lengths=LENGTHS, scope="minibatch")
    assert advantages[:4] == pytest.approx([0.9998, 0.9998, -0.9998, -0.9998], abs=6e-5)
    assert advantages[4:] == pytest.approx([1.4997, -0.4999, -0.4999, -0.4999], abs=6e-5)
    population = knobs.SeqWhiten(ddof=0, eps=0)
    advantages = whitened_groups(population, lengths=LENGTHS, scope="minibatch")
    assert advantages[:4] == pytest.approx([1.0690, 1.0690, -1.0690, -1.0690], abs=6e-5)
    assert advantages[4:] == pytest.approx([1.6036, -0.5345, -0.5345, -0.5345], abs=6e-5)


def test_prorl_whitens_over_all_tokens_of_the_step():
    advantages = whitened_groups(knobs.TokenWhiten(ddof=0), lengths=LENGTHS, scope="step")
    assert advantages[:4] == pytest.approx([1.1594, 1.1594, -1.0230, -1.0230], abs=6e-5)
    assert advantages[4:] == pytest.approx([1.7050, -0.4774, -0.4774, -0.4774], abs=6e-5)
    advantages = whitened_groups(knobs.TokenWhiten(), lengths=LENGTHS, scope="step")
    assert advantages[:4] == pytest.approx([1.1226, 1.1226, -0.9905, -0.9905], abs=6e-5)
    assert advantages[4:] == pytest.approx([1.6508, -0.4622, -0.4622, -0.4622], abs=6e-5)


def test_each_whitening_is_applied_once_in_its_position():
    centred_values = [0.5, 0.5, -0.5, -0.5, 0.75, -0.25, -0.25, -0.25]
    assert whitened_groups(knobs.SeqWhiten(), lengths=LENGTHS, scope="step") == centred_values
    assert whitened_groups(knobs.TokenWhiten(), lengths=LENGTHS, scope="minibatch") == centred_values
    assert whitened_groups(NO_SCALE, lengths=LENGTHS, scope="minibatch") == centred_values


def test_whitening_keeps_the_groups_sum_rule():
    plain_values = whitened_groups(knobs.SeqWhiten(), lengths=LENGTHS, scope="minibatch")
    rooted_values = whitened_groups(knobs.SeqWhiten(), lengths=LENGTHS, scope="minibatch", group_sum="sqrt")
    assert rooted_values == pytest.approx([2 * a for a in plain_values])


def test_an_unscored_completion_is_excluded_from_whitening():
    advantages = whitened_groups(
        knobs.SeqWhiten(eps=0), lengths=LENGTHS, scope="minibatch", unscored=[(1, 0)]
    )
    assert advantages[4:] == [0, 0, 0, 0]
    assert advantages[:2] == pytest.approx(
        [0.5 / (1 / 6) ** 0.5] * 2
    )  # seven completions, of which four have +-0.5


def test_whitening_over_tokens_with_individual_advantages():
    """The values are PPO's whitened GAE advantages."""
    gae = torch.tensor([[0.7372, 0.5655, 0.4900, 0.2000, float("nan")]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, True, False]])
    advantages = whitened_advantages(gae, mask, ddof=1, eps=1e-8)
    assert advantages.tolist()[0] == pytest.approx([1.0667, 0.3004, -0.0365, -1.3306, 0], abs=3e-4)


def test_whitening_equal_advantages_gives_zeros():
    values = torch.full((6, 1), 0.2, dtype=torch.float64)
    assert whitened_advantages(values, torch.ones(6, 1), ddof=1, eps=0.0).flatten().tolist() == [0] * 6
    assert whitened_advantages(values, torch.zeros(6, 1), ddof=1, eps=0.0).flatten().tolist() == [0] * 6


CORRECT_SCORES = [[1, 1, 0, 0], [1, 0, 0, 0]]
FORMAT_SCORES = [[1, 0, 1, 0], [1, 1, 1, 0]]
GDPO = knobs.GroupMean(multi_reward="gdpo")


def gdpo(*terms, weights, unscored=()):
    """Return GDPO's advantages of reward terms (P, G), each with its weight."""
    values = torch.tensor(terms, dtype=torch.float64)
    is_scored = torch.ones_like(values, dtype=torch.bool)
    for index in unscored:
        is_scored[index] = False
    weighted_terms = RewardTerms(
        values, is_scored, torch.tensor(weights, dtype=torch.float64)[:, None].expand(-1, 2)
    )
    return estimate_advantages(
        values.sum(dim=0), is_scored.all(dim=0), GDPO, terms=weighted_terms
    ).advantages.tolist()


def test_gdpo_separates_completions_with_equal_reward_sums():
    advantages = gdpo(CORRECT_SCORES, FORMAT_SCORES, weights=[1, 1])
    assert advantages[0] == pytest.approx([1.2247, 0, 0, -1.2247], abs=6e-5)
    assert advantages[1] == pytest.approx([1.4141, 0, 0, -1.4141], abs=6e-5)
    summed = values([[2, 1, 1, 0], [2, 1, 1, 0]])
    for group in summed:
        assert group == pytest.approx([1.2246, 0, 0, -1.2246], abs=6e-5)


def test_gdpo_weighs_normalised_rewards():
    advantages = gdpo(CORRECT_SCORES, FORMAT_SCORES, weights=[1, 0.5])
    assert advantages[0] == pytest.approx([1.1788, 0.3929, -0.3929, -1.1788], abs=6e-5)
    assert advantages[1] == pytest.approx([1.5879, -0.2268, -0.2268, -1.1342], abs=6e-5)


def test_gdpo_with_one_group_normalises_again_within_it():
    terms = RewardTerms(
        torch.tensor([[[1, 1, 0, 0]], [[1, 0, 1, 0]]], dtype=torch.float64),
        torch.ones(2, 1, 4, dtype=torch.bool),
        torch.ones(2, 1, dtype=torch.float64),
    )
    estimate = estimate_advantages(terms.values.sum(dim=0), terms.scored[0], GDPO, terms=terms)
    s = 2 * 0.5 / (3**-0.5 + 1e-4)
    assert estimate.advantages.tolist()[0] == pytest.approx(
        [s / (s * (2 / 3) ** 0.5 + 1e-4), 0, 0, -1.2246], 1e-4
    )


def test_gdpo_excludes_completions_that_a_term_could_not_score():
    advantages = gdpo(CORRECT_SCORES, FORMAT_SCORES, weights=[1, 1], unscored=[(1, 0, 3)])
    assert advantages[0][3] == 0
    assert sum(advantages[0]) + sum(advantages[1]) == pytest.approx(0, abs=1e-9)


def test_dcpo_blends_a_group_with_all_earlier_visits_of_its_prompt():
    knob = knobs.GroupMean(scale=knobs.Sas())
    visits = None
    step_advantages = []
    for rewards in ([1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]):
        scores = torch.tensor([rewards], dtype=torch.float64)
        estimate = estimate_advantages(scores, torch.ones(1, 4, dtype=torch.bool), knob, visits=visits)
        visits = estimate.visits
        step_advantages.append(estimate.advantages.tolist()[0])
    assert step_advantages[0] == pytest.approx([0.8660, 0.8660, -0.8660, -0.8660], abs=6e-5)
    assert step_advantages[1] == pytest.approx([0.2611] * 4, abs=6e-5)
    assert step_advantages[2] == pytest.approx([-0.6934, -0.6934, -0.6934, 1.0143], abs=6e-5)
    assert [float(visit) for visit in visits] == pytest.approx([3, 0.5833, 0.5401**2], abs=6e-5)


def test_sas_never_divides_by_a_rounding_error():
    knob = knobs.GroupMean(scale=knobs.Sas())
    visits = None
    for _ in range(3):
        estimate = estimate_advantages(
            torch.full((1, 6), 0.2, dtype=torch.float64),
            torch.ones(1, 6, dtype=torch.bool),
            knob,
            visits=visits,
        )
        visits = estimate.visits
        assert estimate.advantages.tolist() == [[0] * 6]


def test_a_group_without_scores_does_not_count_as_a_visit():
    knob = knobs.GroupMean(scale=knobs.Sas())
    estimate = advantages([[1, 1, 0, 0], [1, 0, 0, 0]], knob, unscored=[(1, g) for g in range(4)])
    assert estimate.visits.visit_count.flatten().tolist() == [1, 0]
    assert estimate.advantages[1].tolist() == [0, 0, 0, 0]
