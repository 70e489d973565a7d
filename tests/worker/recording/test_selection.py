from dataclasses import dataclass

from backend.config.run import RunConfig
from backend.config.sizes import most_bytes
from worker.recording.selection import PROBES, recording_mode, select_groups


@dataclass
class Scored:
    kind: str = "train"
    reward_mean: float | None = 0.0
    longest: int = 10


def select(groups, mode="selected", step=5, last_step=10, **kwargs):
    return select_groups(groups, mode=mode, step=step, last_step=last_step, **kwargs)


def test_a_small_run_keeps_every_group():
    config = RunConfig()
    assert recording_mode(config) == "all"
    assert select([Scored(), Scored("eval"), Scored()], mode="all") == [0, 1, 2]


def test_most_bytes_count_training_and_held_out_completions():
    config = RunConfig.model_validate(
        {
            "steps": 10,
            "sampling": {"prompts_per_step": 2, "group_size": 3, "max_new_tokens": 5},
            "evaluation": {"every": 5, "prompts": 7, "k": 1},
        }
    )
    # 10 steps x 2 x 3 and 4 evaluations x 7, 5 tokens of 16 bytes each
    assert most_bytes(config) == (60 + 28) * 5 * 16


def test_most_bytes_count_every_batch_that_may_refill_a_step():
    sizes = {"prompts_per_step": 2, "group_size": 3, "max_new_tokens": 5}
    filters = {"groups": {"type": "zero_variance"}, "refill": {"type": "dynamic", "max_batches": 4}}
    config = RunConfig.model_validate(
        {"steps": 10, "sampling": sizes, "filters": filters, "evaluation": {"every": 0}}
    )
    assert most_bytes(config) == 4 * 60 * 5 * 16


def test_a_big_run_keeps_a_selection():
    assert recording_mode(RunConfig(steps=1_000_000)) == "selected"


def test_the_setting_wins_over_the_estimate():
    assert recording_mode(RunConfig.model_validate({"recording": {"rollouts": "none"}})) == "none"
    assert select([Scored()], mode="none") == []


def test_a_selection_has_the_best_the_worst_the_longest_and_the_shortest_group():
    groups = [
        Scored(reward_mean=0.5),
        Scored(reward_mean=0.9),
        Scored(reward_mean=0.1),
        Scored(reward_mean=0.5, longest=99),
        Scored(reward_mean=0.5, longest=1),
        *[Scored(reward_mean=0.5)] * 20,
    ]
    chosen = select(groups)
    assert {1, 2, 3, 4} <= set(chosen)
    assert len(chosen) <= 5


def test_the_group_at_random_is_the_same_when_a_step_is_written_again():
    groups = [Scored() for _ in range(50)]
    assert select(groups, seed=3) == select(groups, seed=3)
    assert len({tuple(select(groups, step=step)) for step in range(2, 9)}) > 1


def test_first_last_and_alarmed_steps_keep_every_group():
    groups = [Scored() for _ in range(50)]
    everything = list(range(50))
    assert select(groups, step=1) == everything
    assert select(groups, step=10) == everything
    assert select(groups, is_alarmed=True) == everything


def test_the_same_held_out_probes_are_kept_at_every_evaluation():
    held_out = [Scored("eval", reward_mean=n / 100) for n in range(100)]
    assert select(held_out, step=0) == list(range(PROBES))
    assert select([Scored(), *held_out], step=7) == list(range(PROBES + 1))


def test_groups_that_could_not_be_scored_are_chosen_by_length_alone():
    groups = [Scored(reward_mean=None, longest=n) for n in range(10)]
    assert {0, 9} <= set(select(groups))


def test_a_selection_has_the_first_prompts_of_each_suite():
    held_out = [Scored("eval")] * (PROBES + 5)
    suite = [Scored("eval/pairs")] * (PROBES + 5)
    chosen = select([Scored(), *held_out, *suite])
    assert chosen == [0, *range(1, PROBES + 1), *range(PROBES + 6, 2 * PROBES + 6)]


def test_most_bytes_count_each_evaluation_of_a_suite():
    suite = {"name": "a", "prompts": 3, "n": 2, "max_new_tokens": 7, "every": 4, "steps": [1, 8]}
    config = RunConfig.model_validate(
        {
            "steps": 10,
            "sampling": {"prompts_per_step": 1, "group_size": 2, "max_new_tokens": 5},
            "evaluation": {"every": 0, "suites": [suite]},
        }
    )
    # 10 steps x 2 of 5 tokens; steps 0, 1, 4, 8 and 10, each 3 x 2 of 7 tokens; 16 bytes a token
    assert most_bytes(config) == (20 * 5 + 5 * 6 * 7) * 16
