"""Properties of every loss for arbitrary batches."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.config import knobs
from backend.config.formula.loss import formula
from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.config.presets import PRESETS
from backend.config.run import RunConfig
from tests.property.batches import draw_sample, samples
from tests.property.objectives import any_objective, build_allowed, every_pair, members, variants
from worker.objective import kl
from worker.objective.batch import PolicyBatch
from worker.objective.policy_loss import policy_loss
from worker.objective.sampler_correction import truncated_weights

OBJECTIVE_BY_PRESET = {name: resolve({"preset": name}).objective for name in PRESETS} | {
    "everything": Objective(
        surrogate=knobs.DynamicClip(dual_clip=3),
        correction=knobs.SequenceMask(high=2),
        kl=knobs.KlRatioK3(coef=0.1, aggregation="seq_sum"),
        aggregation=knobs.PromptMean(),
        entropy=knobs.EntropyBonus(coef=0.01),
        nll=knobs.PositiveNll(),
        off_policy_mask=knobs.Opsm(),
        router=knobs.RouterShift(),
        token_weight=knobs.AdvantageReweighting(),
    )
}
objectives = (
    st.sampled_from(sorted(OBJECTIVE_BY_PRESET)).map(OBJECTIVE_BY_PRESET.__getitem__) | any_objective()
)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@given(samples(), objectives, st.sampled_from([0.0, 1e30, float("nan"), float("inf")]), st.integers(0, 3))
def test_padding_never_changes_loss_or_gradient(sample, objective, garbage, extra):
    loss, gradient = sample.gradient(objective)
    batch, mask = sample.batch, sample.batch.mask

    def refilled(values):
        padding = torch.full((len(mask), extra), garbage, dtype=torch.float64)
        return torch.cat([values.where(mask, garbage), padding], dim=1)

    sample.new_logprobs, sample.entropy = refilled(sample.new_logprobs), refilled(sample.entropy)
    sample.batch = replace(
        batch,
        mask=torch.cat([mask, torch.zeros(len(mask), extra, dtype=torch.bool)], dim=1),
        old_logprobs=refilled(batch.old_logprobs),
        sampler_logprobs=refilled(batch.sampler_logprobs),
        reference_logprobs=refilled(batch.reference_logprobs),
        router_shift=refilled(batch.router_shift),
        trained=torch.cat([batch.trained, torch.ones(len(mask), extra, dtype=torch.bool)], dim=1),
        uncertain=torch.cat([batch.uncertain, torch.ones(len(mask), extra, dtype=torch.bool)], dim=1),
        covariant=torch.cat([batch.covariant, torch.ones(len(mask), extra, dtype=torch.bool)], dim=1),
    )
    padded_loss, padded_gradient = sample.gradient(objective)
    close(torch.tensor(padded_loss), torch.tensor(loss))
    close(padded_gradient[:, : gradient.shape[1]][mask], gradient[mask])
    assert padded_gradient[~sample.batch.mask].abs().sum() == 0


@given(samples(), objectives, st.randoms(use_true_random=False))
def test_a_split_into_micro_batches_never_changes_the_gradient(sample, objective, rng):
    rows = list(range(len(sample.new_logprobs)))
    rng.shuffle(rows)
    cut_offsets = sorted(rng.sample(range(1, len(rows)), k=min(2, len(rows) - 1)))
    row_sets = [torch.tensor(rows[a:b]) for a, b in itertools.pairwise([0, *cut_offsets, len(rows)])]
    loss, gradient = sample.gradient(objective)
    split_loss, split_gradient = sample.gradient(objective, row_sets)
    close(torch.tensor(split_loss), torch.tensor(loss))
    close(split_gradient, gradient)


@given(samples(), objectives, st.randoms(use_true_random=False))
def test_the_metrics_of_micro_batches_merge_into_those_of_the_batch(sample, objective, rng):
    cut_offset = rng.randint(0, len(sample.new_logprobs))
    batch = sample.batch
    weights = sample.weights(objective)

    def compute_metrics(rows):
        return policy_loss(
            sample.new_logprobs[rows],
            batch.rows(rows),
            objective,
            weights.rows(rows),
            entropy=sample.entropy[rows],
        ).metrics

    metrics_of_batch = compute_metrics(slice(None)).values()
    part_metrics = [
        compute_metrics(rows)
        for rows in (slice(0, cut_offset), slice(cut_offset, None))
        if len(sample.new_logprobs[rows])
    ]
    merged_metrics = sum(part_metrics[1:], start=part_metrics[0]).values()
    assert merged_metrics == pytest.approx(metrics_of_batch, rel=1e-5, abs=1e-6)


def rules():
    """Yield every ratio with every surrogate that it is defined for, including its choices."""
    models = [members(Objective.model_fields[field].annotation) for field in ("ratio", "surrogate")]
    for ratio, surrogate in itertools.product(*models):
        for pair in itertools.product(variants(ratio), variants(surrogate)):
            if objective := build_allowed(dict(zip(("ratio", "surrogate"), pair, strict=True))):
                yield objective


RULES = list(rules())
NEUTRAL_WEIGHTS = [
    {name: member()}
    for name in ("correction", "off_policy_mask", "router")
    for member in members(Objective.model_fields[name].annotation)
]
"""Weights that are 1 while sampler, old policy and policy agree."""


@given(samples(), st.sampled_from(RULES), st.sampled_from(NEUTRAL_WEIGHTS))
def test_without_drift_every_rule_has_the_gradient_of_reinforce(sample, rule, weight):
    try:
        objective = rule.with_(**weight)
    except ValidationError:
        reject()
    batch = sample.batch
    sample.new_logprobs = batch.old_logprobs
    sample.batch = PolicyBatch(
        mask=batch.mask,
        advantages=batch.advantages,
        group_index=batch.group_index,
        old_logprobs=batch.old_logprobs,
        sampler_logprobs=batch.old_logprobs,
        router_shift=torch.zeros_like(batch.old_logprobs),
        covariant=torch.zeros_like(batch.mask),
    )
    lengths = batch.mask.sum(dim=1, keepdim=True).clamp(min=1)
    # a product of ratios is one value per completion, whose slope is that of the total log-probability
    is_one_value = rule.ratio.type == "seq_product" and not rule.surrogate.weighs_tokens
    tokens = 1 if is_one_value else lengths
    expected = -batch.advantages.unsqueeze(1) * batch.mask / tokens / len(lengths)
    close(sample.gradient(objective)[1], expected)


@given(samples(spread=3.0))
def test_k3_is_never_negative_and_truncated_weights_never_exceed_their_cap(sample):
    x = kl.log_ratio_to_reference(
        sample.new_logprobs.nan_to_num(), sample.batch.reference_logprobs.nan_to_num()
    )
    assert (kl.k3(x) >= 0).all()
    assert (kl.k3((x * 1e-9).float()) >= 0).all()
    assert (truncated_weights(x, cap=2.0).weights <= 2).all()


def finite(sample, objective):
    loss, gradient = sample.with_advantages(objective).gradient(objective)
    return math.isfinite(loss) and bool(gradient.isfinite().all())


@pytest.mark.nightly
def test_every_pair_of_knobs_has_a_finite_loss_and_gradient():
    near_sample, far_sample = (
        draw_sample(5, prompts=2, group=2, width=4, spread=spread) for spread in (1.0, 300.0)
    )
    pairs = list(every_pair())
    assert len(pairs) > 800
    for sample in (near_sample, far_sample):
        sample.new_logprobs, sample.entropy = sample.new_logprobs.float(), sample.entropy.float()
    by_turns = zip(pairs, itertools.cycle([near_sample, far_sample]), strict=False)
    assert [objective for objective, sample in by_turns if not finite(sample, objective)] == []


@given(st.sampled_from([0.0, 0.4, 30.0]).flatmap(lambda spread: samples(spread=spread)), any_objective())
def test_any_accepted_objective_has_a_finite_loss_and_gradient(sample, objective):
    assert finite(sample, objective)


@given(any_objective())
def test_any_accepted_objective_has_a_formula(objective):
    assert formula(RunConfig().model_copy(update={"objective": objective}))["text"].startswith("L = ")


def test_the_pairs_contain_every_member_of_every_union():
    paired = {type(getattr(objective, name)) for objective in every_pair() for name in Objective.model_fields}
    offered = {member for field in Objective.model_fields.values() for member in members(field.annotation)}
    assert offered - paired == set()
