"""Tests of merging a user's input into the config that runs."""

import pytest

from backend.base.errors import InvalidConfig
from backend.config.merge import config_hash, merge, resolve
from backend.config.presets import PRESETS
from backend.config.rules.combinations import warnings


def find_errors(base, variant=None):
    with pytest.raises(InvalidConfig) as error_info:
        resolve(base, variant)
    return {error.path: error.message for error in error_info.value.errors}


def test_an_empty_input_gives_the_tiny_policy_on_sums():
    config = resolve({})
    assert config.policy.name == "tiny"
    assert [source.name for source in config.problems] == ["sums"]
    assert (config.sampling.prompts_per_step, config.sampling.group_size) == (16, 8)


def test_mappings_merge_deeply_and_lists_are_replaced():
    assert merge({"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}}) == {"a": {"b": 1, "c": [3]}}


def test_a_union_of_another_type_is_replaced_entirely():
    lower_layer = {"surrogate": {"type": "ppo_clip", "eps_high": 0.28}}
    assert merge(lower_layer, {"surrogate": {"type": "none"}}) == {"surrogate": {"type": "none"}}
    assert merge(lower_layer, {"surrogate": {"eps_low": 0.1}}) == {
        "surrogate": {"type": "ppo_clip", "eps_high": 0.28, "eps_low": 0.1}
    }


def test_a_variants_preset_replaces_the_bases_preset_but_not_its_fields():
    config = resolve({"preset": "dr_grpo", "steps": 7}, {"name": "b", "preset": "dapo"})
    assert config.preset == "dapo"
    assert config.steps == 7
    assert config.objective.surrogate.eps_high == 0.28


def test_the_seed_of_the_launch_takes_precedence():
    assert resolve({"seed": 3}, {}, 5).seed == 5


def test_seeds_of_one_variant_share_a_config_hash():
    assert config_hash(resolve({}, {}, 0)) == config_hash(resolve({}, {}, 1))
    assert config_hash(resolve({}, {}, 0)) != config_hash(resolve({"steps": 3}, {}, 0))


@pytest.mark.parametrize("policy", ["tiny", "tiny_moe", "Qwen/Qwen3-0.6B"])
def test_every_preset_launches_on_every_kind_of_policy_unchanged(policy):
    for preset in PRESETS:
        config = resolve({"policy": {"name": policy}}, {"preset": preset})
        assert (config.preset, config.policy.name) == (preset, policy)


@pytest.mark.parametrize("preset", ["r1", "cispo"])
def test_minibatches_of_a_preset_are_limited_to_the_prompts_of_a_step_but_not_the_users(preset):
    few_prompts = {"sampling": {"prompts_per_step": 3}}
    assert resolve({"preset": preset}).updates.minibatches == 16
    assert resolve({"policy": {"name": "Qwen/Qwen3-0.6B"}}, {"preset": preset}).updates.minibatches == 8
    assert resolve({}, {"preset": preset} | few_prompts).updates.minibatches == 3
    assert resolve(few_prompts, {"preset": preset, "updates": {"minibatches": 2}}).updates.minibatches == 2
    written_config = {"preset": preset, "updates": {"minibatches": 4}} | few_prompts
    assert list(find_errors(written_config)) == ["updates.minibatches"]
    assert list(find_errors({"updates": {"minibatches": 4}}, {"preset": preset} | few_prompts)) == [
        "updates.minibatches"
    ]


def test_a_wrong_value_is_not_replaced_by_minibatches_of_a_preset():
    few_prompts = {"preset": "r1", "sampling": {"prompts_per_step": 3}}
    assert list(find_errors(few_prompts | {"updates": 3})) == ["updates"]
    assert list(find_errors({"updates": None}, few_prompts)) == ["updates"]


@pytest.mark.parametrize("policy", ["tiny", "Qwen/Qwen3-0.6B"])
@pytest.mark.parametrize("preset", [name for name in PRESETS if "_book" in name])
def test_the_books_scripts_take_one_prompt_per_step_in_order(preset, policy):
    config, plain_config = (
        resolve({"preset": preset, "policy": {"name": policy}}),
        resolve({"policy": {"name": policy}}),
    )
    sampling = config.sampling
    assert (sampling.prompts_per_step, sampling.group_size, sampling.order) == (1, 8, "sequential")
    assert (sampling.temperature, sampling.top_p) == (0.8, 0.9)
    assert config.optimizer == plain_config.optimizer.with_(weight_decay=0.01, decayed="all")
    assert sampling.max_new_tokens == plain_config.sampling.max_new_tokens
    assert sampling.keep_mask == (preset == "deepseek_v32_book")


def join_warnings(**written):
    return " | ".join(warnings(resolve(written)))


def test_several_updates_without_a_ratio_cause_a_warning():
    assert "without a ratio" not in join_warnings(preset="reinforce")
    assert "without a ratio" in join_warnings(preset="reinforce", updates={"minibatches": 4})
    assert "without a ratio" not in join_warnings(preset="gspo")


@pytest.mark.parametrize(
    "objective",
    [
        {"ratio": {"type": "token", "old": "sampler", "logprob_temperature": "one"}},
        {"ratio": {"type": "token", "logprob_temperature": "one"}, "correction": {"type": "token_tis"}},
        {"ratio": {"type": "token", "logprob_temperature": "one"}, "off_policy_mask": {"type": "opsm"}},
    ],
)
def test_a_comparison_across_temperatures_causes_a_warning(objective):
    assert "corrects for that temperature" in join_warnings(
        objective=objective, sampling={"temperature": 0.8}
    )
    assert "corrects for that temperature" not in join_warnings(objective=objective)
    at_one_temperature = objective | {"ratio": objective["ratio"] | {"logprob_temperature": "sampling"}}
    assert "corrects for that temperature" not in join_warnings(
        objective=at_one_temperature, sampling={"temperature": 0.8}
    )


def test_router_shift_needs_a_second_update_to_have_an_effect():
    moe = {"name": "tiny_moe"}
    assert "the router has not changed" not in join_warnings(preset="rspo", policy=moe)
    assert "the router has not changed" in join_warnings(
        preset="rspo", policy=moe, updates={"minibatches": 1}
    )


@pytest.mark.parametrize("gap", [{"staleness": 1}, {"precision": "int8"}, {"top_p": 0.9}])
def test_a_ratio_to_a_differing_sampler_is_clipped_at_the_first_update(gap):
    wider = {"surrogate": {"type": "ppo_clip", "eps_high": 0.28}}
    to_sampler = wider | {"ratio": {"type": "token", "old": "sampler"}}
    assert "clipping has no effect" in join_warnings(objective=to_sampler)
    assert "clipping has no effect" in join_warnings(objective=wider, sampling=gap)
    assert "clipping has no effect" not in join_warnings(objective=to_sampler, sampling=gap)
    assert "clipping has no effect" not in join_warnings(), "nobody chose the clipping of the defaults"


@pytest.mark.parametrize(
    ("written", "path", "phrase"),
    [
        ({"preset": "gpro"}, "preset", "no preset"),
        ({"stepz": 3}, "stepz", "no such field"),
        ({"steps": -1}, "steps", "got -1"),
        ({"steps": "5"}, "steps", 'must be a whole number, got "5"'),
        ({"steps": True}, "steps", "must be a whole number, got true"),
        ({"optimizer": {"lr": "1e-4"}}, "optimizer.lr", 'must be a number, got "1e-4"'),
        ({"resources": {"activation_checkpointing": 1}}, "resources.activation_checkpointing", "a boolean"),
        ({"optimizer": {"lr": float("nan")}}, "optimizer.lr", "finite"),
        ({"objective": {"surrogate": {"eps_low": -1}}}, "objective.surrogate.eps_low", "-1"),
        ({"objective": {"surrogate": {"type": "clip"}}}, "objective.surrogate", "ppo_clip"),
        ({"problems": [{"name": "sums", "operands": 99}]}, "problems.0.operands", "99"),
        ({"problems": []}, "problems", "at least 1"),
        ({"problems": [{"name": "file"}]}, "problems.0.path", "is required"),
        ({"problems": [{"operands": 3}]}, "problems.0.name", "is required"),
        ({"problems": "sums"}, "problems", 'expected a list, got "sums"'),
        ({"policy": "tiny"}, "policy", 'expected an object with fields, got "tiny"'),
        ({"policy": {"name": "../etc/passwd"}}, "policy.name", "pattern"),
        ({"optimizer": {"betas": [0.9]}}, "optimizer.betas.1", "is required"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "optimizer.betas.1", "less than 1"),
    ],
)
def test_a_bad_field_is_named_with_its_value(written, path, phrase):
    errors = find_errors(written)
    assert list(errors) == [path]
    assert phrase in errors[path]


@pytest.mark.parametrize(
    ("written", "path", "phrase"),
    [
        (
            {"sampling": {"prompts_per_step": 4096, "group_size": 128}},
            "sampling.group_size",
            "is 128, times prompts_per_step = 4096 makes 524,288 a step: expected at most 262,144",
        ),
        (
            {"evaluation": {"prompts": 100_000, "k": 4}},
            "evaluation.prompts",
            "is 100000, times k = 4 makes 400,000 an evaluation: expected at most 262,144",
        ),
        ({"evaluation": {"every": 10**8}}, "evaluation.every", "at most 10000000"),
        ({"checkpointing": {"every": 10**8}}, "checkpointing.every", "at most 10000000"),
        ({"optimizer": {"warmup_steps": 10**8}}, "optimizer.warmup_steps", "at most"),
        ({"optimizer": {"max_grad_norm": 1e300}}, "optimizer.max_grad_norm", "got 1e+300"),
        ({"problems": [{"name": "sums", "weight": 1e-300}]}, "problems.0.weight", "got 1e-300"),
        ({"rewards": [{"name": "correctness", "weight": 1e9}]}, "rewards.0.weight", "got 1000000000.0"),
        ({"stop_rules": [{"type": "wall_time", "seconds": 1e300}]}, "stop_rules.0.seconds", "got 1e+300"),
    ],
)
def test_an_absurd_size_is_refused_once_at_its_field(written, path, phrase):
    errors = find_errors(written)
    assert list(errors) == [path]
    assert phrase in errors[path]


def single_completion_config(advantage):
    """Return a config with one completion per prompt and an advantage that allows it."""
    return {"sampling": {"group_size": 1}, "objective": {"advantage": advantage}}


def served_config(**sampling):
    """Return the config of a run that a server samples."""
    return {"sampling": {"engine": {"type": "server"}, **sampling}}


SERVED_CONFIG = served_config()
COLOCATED_ENGINE = {"type": "colocated"}
TWO_DOMAINS = [{"name": "sums"}, {"name": "sums", "domain": "poetry"}]


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ({"sampling": {"group_size": 1}}, "sampling.group_size"),
        ({"updates": {"minibatches": 17}}, "updates.minibatches"),
        ({"updates": {"resample_each_epoch": True}}, "updates.resample_each_epoch"),
        ({"preset": "trpo", "updates": {"epochs": 2}}, "updates.epochs"),
        ({"preset": "trpo", "updates": {"minibatches": 2}}, "updates.minibatches"),
        ({"preset": "trpo", "objective": {"surrogate": {"type": "ppo_clip"}}}, "objective.surrogate.type"),
        ({"preset": "trpo", "objective": {"ratio": {"old": "current"}}}, "objective.ratio"),
        ({"preset": "trpo", "objective": {"ratio": {"type": "none"}}}, "objective.ratio"),
        ({"preset": "trpo", "policy": {"dtype": "bfloat16"}}, "policy.dtype"),
        (
            {"preset": "ppo", "objective": {"value": {"lr_factor": 1000}}, "optimizer": {"lr": 0.01}},
            "objective.value.lr_factor",
        ),
        ({"filters": {"refill": {"type": "dynamic"}}}, "filters.refill.type"),
        ({"filters": {"upweight": True}}, "filters.upweight"),
        ({"preset": "olmo3", "updates": {"epochs": 2, "resample_each_epoch": True}}, "filters.refill.type"),
        (
            single_completion_config({"type": "none", "scale": {"type": "group_std"}}),
            "objective.advantage.scale.type",
        ),
        (
            single_completion_config({"type": "ema", "scale": {"type": "group_std"}}),
            "objective.advantage.scale.type",
        ),
        (
            single_completion_config({"type": "batch_mean", "scale": {"type": "group_std"}}),
            "objective.advantage.scale.type",
        ),
        (
            single_completion_config({"type": "critic"}) | {"filters": {"groups": {"type": "accuracy"}}},
            "filters.groups.type",
        ),
        (
            single_completion_config({"type": "critic"}) | {"filters": {"groups": {"type": "zero_variance"}}},
            "filters.groups.type",
        ),
        ({"filters": {"groups": {"type": "accuracy", "low": 0.5, "high": 0.2}}}, "filters.groups.high"),
        ({"rewards": [{"name": "correctness", "domain": "poetry"}]}, "rewards.0.domain"),
        (
            {"rewards": [{"name": "correctness", "domain": "poetry"}], "problems": TWO_DOMAINS},
            "problems.0.domain",
        ),
        (
            SERVED_CONFIG | {"policy": {"name": "tiny_moe"}, **served_config(routing_replay=True)},
            "sampling.routing_replay",
        ),
        (served_config(keep_mask=True, top_p=0.9), "sampling.keep_mask"),
        (served_config(precision="int8"), "sampling.precision"),
        (served_config(staleness=1), "sampling.staleness"),
        (
            SERVED_CONFIG | {"updates": {"epochs": 2, "resample_each_epoch": True}},
            "updates.resample_each_epoch",
        ),
        (
            SERVED_CONFIG
            | {
                "policy": {
                    "name": "Qwen/Qwen3-0.6B",
                    "quantization": "nf4",
                    "adapter": {"type": "lora", "rank": 4},
                }
            },
            "policy.quantization",
        ),
        (
            SERVED_CONFIG | {"objective": {"token_weight": {"type": "top_entropy"}}},
            "objective.token_weight.type",
        ),
        (SERVED_CONFIG | {"objective": {"entropy": {"type": "adaptive"}}}, "objective.entropy.type"),
        (served_config(engine=COLOCATED_ENGINE, keep_mask=True, top_p=0.9), "sampling.keep_mask"),
        (served_config(engine=COLOCATED_ENGINE, staleness=1), "sampling.staleness"),
        (served_config(engine=COLOCATED_ENGINE, ahead=1), "sampling.ahead"),
        (
            served_config(engine=COLOCATED_ENGINE) | {"recording": {"alternatives": 2}},
            "recording.alternatives",
        ),
        (served_config(engine=COLOCATED_ENGINE) | {"resources": {"devices": 2}}, "sampling.engine.type"),
        (served_config(engine=COLOCATED_ENGINE | {"memory_share": 0.99}), "sampling.engine.memory_share"),
        ({"sampling": {"ahead": 1, "staleness": 1}}, "sampling.staleness"),
        ({"sampling": {"ahead": 1}, "preset": "olmo3"}, "filters.refill.type"),
        (
            {"sampling": {"ahead": 1}, "updates": {"epochs": 2, "resample_each_epoch": True}},
            "updates.resample_each_epoch",
        ),
    ],
)
def test_a_contradiction_is_refused_at_the_field_that_must_change(written, path):
    assert list(find_errors(written)) == [path]


@pytest.mark.parametrize(
    "sampling", [{"engine": {"type": "server"}}, {"engine": COLOCATED_ENGINE}, {"ahead": 2}]
)
def test_samples_of_another_engine_are_corrected_unless_configured_otherwise(sampling):
    def correction(**written):
        return resolve({"sampling": sampling, **written}).objective.correction

    assert (correction().type, correction().cap) == ("token_tis", 2.0)
    assert correction(preset="dapo").type == "token_tis"
    assert resolve({}, {"sampling": sampling}).objective.correction.type == "token_tis"
    without_correction = {"objective": {"correction": {"type": "none"}}}
    assert correction(**without_correction).type == "none"
    assert resolve({"sampling": sampling}, without_correction).objective.correction.type == "none"
    assert "nothing corrects for that" in join_warnings(sampling=sampling, **without_correction)
    assert "nothing corrects" not in join_warnings(sampling=sampling)
    assert correction(objective={"correction": {"type": "seq_mask"}}).type == "seq_mask"
    # the ratio already covers the mismatch
    assert correction(objective={"ratio": {"old": "sampler"}}).type == "none"
    assert resolve({}).objective.correction.type == "none"
