"""What must hold for every loss on any batch."""

import itertools
import typing
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.config import knobs
from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.config.presets import PRESETS
from tests.property.batches import draw_sample, samples
from worker.objective import kl
from worker.objective.batch import PolicyBatch
from worker.objective.corrections import truncated
from worker.objective.policy_loss import policy_loss

OBJECTIVES = {name: resolve({"preset": name}).objective for name in PRESETS} | {
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
objectives = st.sampled_from(sorted(OBJECTIVES)).map(OBJECTIVES.__getitem__)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@given(samples(), objectives, st.sampled_from([0.0, 1e30, float("nan"), float("inf")]), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_padding_never_changes_loss_or_gradient(sample, objective, garbage, extra):
    loss, slope = sample.gradient(objective)
    batch, mask = sample.batch, sample.batch.mask

    def refilled(values):
        wide = torch.full((len(mask), extra), garbage, dtype=torch.float64)
        return torch.cat([values.where(mask, garbage), wide], dim=1)

    sample.new, sample.entropy = refilled(sample.new), refilled(sample.entropy)
    sample.batch = replace(
        batch,
        mask=torch.cat([mask, torch.zeros(len(mask), extra, dtype=torch.bool)], dim=1),
        old_logprobs=refilled(batch.old_logprobs),
        sampler_logprobs=refilled(batch.sampler_logprobs),
        reference_logprobs=refilled(batch.reference_logprobs),
        router_shift=refilled(batch.router_shift),
        trained=torch.cat([batch.trained, torch.ones(len(mask), extra, dtype=torch.bool)], dim=1),
        uncertain=torch.cat([batch.uncertain, torch.ones(len(mask), extra, dtype=torch.bool)], dim=1),
    )
    padded_loss, padded_slope = sample.gradient(objective)
    close(torch.tensor(padded_loss), torch.tensor(loss))
    close(padded_slope[:, : slope.shape[1]][mask], slope[mask])
    assert padded_slope[~sample.batch.mask].abs().sum() == 0


@given(samples(), objectives, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_split_into_micro_batches_never_changes_the_gradient(sample, objective, dice):
    rows = list(range(len(sample.new)))
    dice.shuffle(rows)
    cuts = sorted(dice.sample(range(1, len(rows)), k=min(2, len(rows) - 1)))
    parts = [torch.tensor(rows[a:b]) for a, b in itertools.pairwise([0, *cuts, len(rows)])]
    loss, slope = sample.gradient(objective)
    split_loss, split_slope = sample.gradient(objective, parts)
    close(torch.tensor(split_loss), torch.tensor(loss))
    close(split_slope, slope)


@given(samples(), objectives, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_metrics_of_micro_batches_merge_into_those_of_the_whole(sample, objective, dice):
    cut = dice.randint(0, len(sample.new))
    batch = sample.batch
    weights = sample.weights(objective)

    def part(rows):
        return policy_loss(
            sample.new[rows], batch.rows(rows), objective, weights.rows(rows), entropy=sample.entropy[rows]
        ).metrics

    whole = part(slice(None)).values()
    pieces = [part(rows) for rows in (slice(0, cut), slice(cut, None)) if len(sample.new[rows])]
    joined = sum(pieces[1:], start=pieces[0]).values()
    assert joined == pytest.approx(whole, rel=1e-5, abs=1e-6)


RULES = {
    "token": Objective(surrogate=knobs.NoSurrogate()),
    "ppo": Objective(),
    "book": Objective(surrogate=knobs.BookSigned()),
    "cispo": Objective(surrogate=knobs.WeightCap()),
    "cispo masked": Objective(surrogate=knobs.WeightCap(token_mask=knobs.PpoTokenMask())),
    "sapo": Objective(surrogate=knobs.Sapo()),
    "dcpo": Objective(surrogate=knobs.DynamicClip(dual_clip=3)),
    "gspo": OBJECTIVES["gspo"],
    "gspo_token": OBJECTIVES["gspo_token"],
    "gmpo": OBJECTIVES["gmpo"],
    "current": Objective(ratio=knobs.TokenRatio(old="current")),
    "sampler": Objective(ratio=knobs.TokenRatio(old="sampler")),
    "reinforce": Objective(ratio=knobs.NoRatio(), surrogate=knobs.NoSurrogate()),
}


@given(samples(), st.sampled_from(sorted(RULES)))
@settings(max_examples=150, deadline=None)
def test_without_drift_every_rule_has_the_gradient_of_reinforce(sample, rule):
    sample.new = sample.batch.old_logprobs
    sample.batch = PolicyBatch(
        mask=sample.batch.mask,
        advantages=sample.batch.advantages,
        group_index=sample.batch.group_index,
        old_logprobs=sample.new,
        sampler_logprobs=sample.new,
    )
    mask = sample.batch.mask
    lengths = mask.sum(dim=1, keepdim=True).clamp(min=1)
    expected = -sample.batch.advantages.unsqueeze(1) * mask / lengths / len(mask)
    close(sample.gradient(RULES[rule])[1], expected)


@given(samples(spread=3.0))
@settings(max_examples=100, deadline=None)
def test_k3_is_never_negative_and_truncated_weights_never_exceed_their_cap(sample):
    x = kl.log_ratio_to_reference(sample.new.nan_to_num(), sample.batch.reference_logprobs.nan_to_num())
    assert (kl.k3(x) >= 0).all()
    assert (kl.k3((x * 1e-9).float()) >= 0).all()
    assert (truncated(x, cap=2.0).weights <= 2).all()


def members(union):
    return [member() for member in typing.get_args(typing.get_args(union)[0])]


def every_combination():
    """Each valid combination of ratio, surrogate, correction, KL, aggregation and token weight."""
    unions = (
        knobs.Ratio,
        knobs.Surrogate,
        knobs.Correction,
        knobs.Kl,
        knobs.Aggregation,
        knobs.TokenWeight,
    )
    names = ("ratio", "surrogate", "correction", "kl", "aggregation", "token_weight")
    bonus = itertools.cycle(members(knobs.Entropy))
    masks, routers = (itertools.cycle(members(union)) for union in (knobs.OffPolicyMask, knobs.Router))
    for chosen in itertools.product(*map(members, unions)):
        fields = dict(zip(names, chosen, strict=True))
        if _fits(**fields):
            router = next(routers) if fields["ratio"].type != "none" else knobs.NoRouterShift()
            yield Objective(**fields, entropy=next(bonus), off_policy_mask=next(masks), router=router)


def _fits(*, ratio, surrogate, kl, token_weight, **_):
    allowed = {
        "token": {"none", "ppo_clip", "book_signed", "weight_cap", "sapo", "dynamic"},
        "seq_geo": {"none", "ppo_clip", "book_signed", "sapo", "geo_token"},
        "seq_geo_token": {"none", "ppo_clip", "book_signed"},
        "seq_product": {"none", "ppo_clip", "book_signed"},
        "none": {"none"},
    }
    shared = ratio.type in {"seq_geo", "seq_product"}
    return (
        surrogate.type in allowed[ratio.type]
        and not (shared and token_weight.type != "none")
        and not (ratio.type == "none" and kl.type.startswith("r_"))
    )


@pytest.mark.parametrize(
    ("spread", "stride"), [(1.0, 17), (300.0, 17), pytest.param(30.0, 1, marks=pytest.mark.slow)]
)
def test_every_combination_of_knobs_has_a_finite_loss_and_gradient(spread, stride):
    sample = draw_sample(5, prompts=2, group=2, width=4, spread=spread)
    sample.new, sample.entropy = sample.new.float(), sample.entropy.float()
    combinations = list(every_combination())
    assert len(combinations) > 4000
    for objective in combinations[::stride]:
        loss, slope = sample.gradient(objective)
        assert torch.isfinite(torch.tensor(loss)), objective
        assert slope.isfinite().all(), objective
