"""Properties of checkpoint retention over whole lives of runs."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from backend.runs.retention import SavedCheckpoint, choose_kept_ids, max_kept_checkpoints, spread_steps

gaps = st.lists(st.integers(1, 50), min_size=1, max_size=30)
accuracies = st.lists(st.none() | st.floats(0, 1), min_size=30, max_size=30)
rules = st.fixed_dictionaries({"keep": st.integers(1, 5), "spaced": st.integers(0, 6)})


def life(gaps, accuracies, rule):
    """Yield the checkpoints after each save of a run."""
    step, saved_checkpoints = 0, {}
    for number, gap in enumerate(gaps):
        step += gap
        saved_checkpoints[str(step)] = SavedCheckpoint(str(step), step, 1, accuracies[number])
        kept = choose_kept_ids(saved_checkpoints.values(), **rule)
        saved_checkpoints = {
            name: checkpoint for name, checkpoint in saved_checkpoints.items() if name in kept
        }
        yield step, dict(saved_checkpoints)


@given(gaps, accuracies, rules)
def test_the_number_of_checkpoints_is_as_documented_and_includes_the_newest(gaps, accuracies, rule):
    saved_steps = []
    for step, remaining_checkpoints in life(gaps, accuracies, rule):
        saved_steps.append(step)
        assert len(remaining_checkpoints) <= max_kept_checkpoints(**rule)
        assert {str(step) for step in saved_steps[-rule["keep"] :]} <= remaining_checkpoints.keys()


@given(gaps, accuracies, rules)
def test_the_best_by_held_out_accuracy_stays(gaps, accuracies, rule):
    best = -1.0
    for number, (_, remaining_checkpoints) in enumerate(life(gaps, accuracies, rule)):
        best = max(best, -1.0 if accuracies[number] is None else accuracies[number])
        assert best < 0 or best in {checkpoint.accuracy for checkpoint in remaining_checkpoints.values()}


@given(gaps, accuracies, rules.filter(lambda rule: rule["spaced"] > 0))
def test_a_checkpoint_from_before_any_collapse_is_kept(gaps, accuracies, rule):
    for number, (_, remaining_checkpoints) in enumerate(life(gaps, accuracies, rule)):
        first = gaps[0]
        assert str(first) in remaining_checkpoints
        assert number >= rule["keep"] + rule["spaced"] or len(remaining_checkpoints) == number + 1


@given(gaps, accuracies, rules)
def test_a_second_call_changes_nothing(gaps, accuracies, rule):
    for _, remaining_checkpoints in life(gaps, accuracies, rule):
        assert choose_kept_ids(remaining_checkpoints.values(), **rule) == remaining_checkpoints.keys()


def test_the_checkpoint_before_a_collapse_is_close_to_it():
    """The ratio of one kept age to the next is bounded, regardless of the length of the run."""
    for spacing, limit in ((4, 8.0), (8, 2.5)):
        worst = 0.0
        for step, remaining_checkpoints in life([1] * 300, [None] * 300, {"keep": 3, "spaced": spacing}):
            ages = sorted(step - checkpoint.step + 1 for checkpoint in remaining_checkpoints.values())
            worst = max(worst, *(older_age / younger_age for younger_age, older_age in pairwise(ages)), 0)
        assert worst <= limit, worst


def test_a_run_of_a_thousand_steps_keeps_steps_of_all_ages():
    *_, (_, remaining_checkpoints) = life([25] * 40, [None] * 40, {"keep": 3, "spaced": 4})
    assert sorted(checkpoint.step for checkpoint in remaining_checkpoints.values()) == [
        25,
        375,
        725,
        850,
        950,
        975,
        1000,
    ]


def test_checkpoints_that_other_runs_begin_with_stay():
    saved_checkpoints = [SavedCheckpoint(str(step), step, 1, None) for step in range(1, 10)]
    assert choose_kept_ids(saved_checkpoints, keep=1, spaced=0, needed_steps={4}) == {"4", "9"}


def test_of_two_attempts_at_one_step_the_later_stays():
    saved_checkpoints = [
        SavedCheckpoint("a", 1, 1, None),
        SavedCheckpoint("b", 1, 2, None),
        SavedCheckpoint("c", 2, 2, None),
    ]
    assert choose_kept_ids(saved_checkpoints, keep=1, spaced=1) == {"b", "c"}


def test_without_spacing_nothing_is_spread_out():
    assert spread_steps([1, 2, 3], newest_steps=[4], limit=0) == set()
    assert spread_steps([], newest_steps=[4], limit=3) == set()
