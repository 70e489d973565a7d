"""Refuse suites that contradict one another or the rest of a config, and warn about doubtful ones."""

from collections.abc import Iterator
from math import lcm

from backend.config.base import MAX_COMPLETIONS, Problem
from backend.config.problems import FileProblem, HubProblem, ProblemSource
from backend.config.sections import RunSections


def suite_errors(config: RunSections) -> Iterator[Problem]:
    """Yield (dotted path, reason) for each suite that cannot be evaluated, and for an unknown `best_by`."""
    names: set[str] = set()
    for number, suite in enumerate(config.evaluation.suites):
        path = f"evaluation.suites.{number}"
        if suite.name in names:
            yield f"{path}.name", f"{suite.name!r} is the name of two suites: their metrics would be mixed up"
        names.add(suite.name)
        if (rows := suite.prompts * suite.n) > MAX_COMPLETIONS:
            reason = f"is {suite.prompts}, times n = {suite.n} makes {rows:,} completions"
            yield f"{path}.prompts", f"{reason}: expected at most {MAX_COMPLETIONS:,}"
        if late_steps := [step for step in suite.steps if step > config.steps]:
            yield f"{path}.steps", f"holds {late_steps[0]}, but the run has {config.steps} steps"
        if suite.rows == "all" and (training_path := _trained_alike(config, suite.problem)):
            yield f"{path}.rows", f"is all, but {training_path} trains on these rows: expected held_out"
    best_by = config.checkpointing.best_by
    if best_by and best_by not in names:
        suite_names = ", ".join(sorted(names)) or "none"
        yield (
            "checkpointing.best_by",
            f"is {best_by!r}, but the suites of the evaluation are: {suite_names}",
        )


def _trained_alike(config: RunSections, problem: ProblemSource) -> str:
    """Return the path of a source that trains on the rows of a problem, or "" if there is none."""
    rows_read = _training_rows_name(problem)
    numbers = (
        number
        for number, source in enumerate(config.problems)
        if rows_read and _training_rows_name(source) == rows_read
    )
    return next((f"problems.{number}" for number in numbers), "")


def _training_rows_name(source: ProblemSource) -> tuple[str, ...]:
    """Return the identity of a source's training rows, or () if it has no fixed rows."""
    if isinstance(source, FileProblem):
        return (source.path,)
    return (source.dataset, source.subset, source.split) if isinstance(source, HubProblem) else ()


def suite_warnings(config: RunSections) -> Iterator[str]:
    """Yield warnings about valid but doubtful settings."""
    checkpointing, suite = config.checkpointing, config.evaluation.suite(config.checkpointing.best_by)
    if suite and checkpointing.every:
        steps = {step for step in suite.steps if step % checkpointing.every == 0} - {0}
        if not (suite.every and lcm(suite.every, checkpointing.every) < config.steps) and len(steps) < 2:
            yield (
                f"checkpointing.best_by: {suite.name} is evaluated at fewer than two checkpoints, so there "
                "is nothing to choose from: let evaluations and checkpoints share their steps"
            )
