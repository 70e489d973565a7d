from dataclasses import dataclass

from backend.config.run import RunConfig
from backend.config.sizes import max_bytes
from worker.recording.selection import MAX_PROBES, select_groups


@dataclass
class Scored:
    kind: str = "train"
    reward_mean: float | None = 0.0
    longest: int = 10


def select(groups, mode="selected", step=5, last_step=10, **kwargs):
    return select_groups(groups, mode=mode, step=step, last_step=last_step, **kwargs)


def test_the_maximum_bytes_include_training_and_held_out_completions():
    config = RunConfig.model_validate(
        {
            "steps": 10,
            "sampling": {"prompts_per_step": 2, "group_size": 3, "max_new_tokens": 5},
            "evaluation": {"every": 5, "prompts": 7, "k": 1},
        }
    )
    # 10 steps x 2 x 3 and 4 evaluations x 7, 5 tokens of 16 bytes each
    assert max_bytes(config) == (60 + 28) * 5 * 16


def test_a_selection_has_the_best_worst_longest_and_shortest_group():
    groups = [
        Scored(reward_mean=0.5),
        Scored(reward_mean=0.9),
        Scored(reward_mean=0.1),
        Scored(reward_mean=0.5, longest=99),
        Scored(reward_mean=0.5, longest=1),
        *[Scored(reward_mean=0.5)] * 20,
    ]
    selected_indices = select(groups)
    assert {1, 2, 3, 4} <= set(selected_indices)
    assert len(selected_indices) <= 5


def test_first_last_and_alarmed_steps_keep_every_group():
    groups = [Scored() for _ in range(50)]
    all_indices = list(range(50))
    assert select(groups, step=1) == all_indices
    assert select(groups, step=10) == all_indices
    assert select(groups, is_alarmed=True) == all_indices


def test_the_same_held_out_probes_are_kept_at_every_evaluation():
    held_out = [Scored("eval", reward_mean=n / 100) for n in range(100)]
    assert select(held_out, step=0) == list(range(MAX_PROBES))
    assert select([Scored(), *held_out], step=7) == list(range(MAX_PROBES + 1))


def test_a_selection_has_the_first_prompts_of_each_suite():
    held_out = [Scored("eval")] * (MAX_PROBES + 5)
    suite = [Scored("eval/pairs")] * (MAX_PROBES + 5)
    selected_indices = select([Scored(), *held_out, *suite])
    assert selected_indices == [0, *range(1, MAX_PROBES + 1), *range(MAX_PROBES + 6, 2 * MAX_PROBES + 6)]
