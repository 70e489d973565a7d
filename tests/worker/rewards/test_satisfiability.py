"""Tests of the satisfiability search for zebra puzzles."""

import itertools
import random

from worker.rewards.reasoning_gym.satisfiability import itersolve


def brute_force(clauses):
    variables = sorted({abs(literal) for clause in clauses for literal in clause})
    for signs in itertools.product([1, -1], repeat=len(variables)):
        model = [sign * variable for sign, variable in zip(signs, variables, strict=True)]
        if all(set(clause) & set(model) for clause in clauses):
            yield model


def test_the_search_agrees_with_brute_force():
    rng = random.Random(0)
    for _ in range(20):
        size = rng.randint(2, 24)
        clauses = [[rng.choice([1, -1]) * rng.randint(1, 6) for _ in range(3)] for _ in range(size)]
        assert sorted(itersolve(clauses)) == sorted(brute_force(clauses)), clauses


def test_a_zebra_puzzle_has_the_same_answer_as_with_pycosat():
    from worker.rewards.reasoning_gym.entries import entry_at

    assert entry_at("zebra_puzzles", {}, 1, 0)["answer"] == "bob"
