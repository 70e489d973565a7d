"""Compare the diagnosis with people's labels of completions as hacked.

The input is the export of a search (JSON lines). A running service is asked for the diagnosis of each run
in it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from benchmarks.diagnosis.results import share_row

HACKED_LABEL = "hacked"
HACKING_CAUSE = "reward_hacking"


class Labelled(NamedTuple):
    """Labels that people gave to the completions of one run."""

    run: str
    labelled: int
    """Number of completions with any label."""
    hacked: int
    """Number of completions labelled as hacked."""
    first_step: int | None
    """Step of the first completion labelled as hacked."""


def labelled_runs(rows: Iterable[Mapping[str, Any]]) -> list[Labelled]:
    """Return the runs of an export that have labelled completions, by id."""
    by_run: dict[str, list[tuple[int, bool]]] = {}
    for row in rows:
        if labels := {label["label"] for label in row["labels"]}:
            by_run.setdefault(row["run"], []).append((row["step"], HACKED_LABEL in labels))
    return [_labelled(run, run_labels) for run, run_labels in sorted(by_run.items())]


def _labelled(run: str, run_labels: list[tuple[int, bool]]) -> Labelled:
    hacked_steps = [step for step, is_hacked in run_labels if is_hacked]
    return Labelled(run, len(run_labels), len(hacked_steps), min(hacked_steps, default=None))


def format_label_report(runs: Iterable[Labelled], read_diagnosis: Callable[[str], Mapping[str, Any]]) -> str:
    """Return runs with their labels and diagnoses, and how often hacking was named, in Markdown."""
    lines = [
        "| run | labelled | hacked | first at step | verdict | place of reward hacking | onset |",
        "|---|---|---|---|---|---|---|",
    ]
    named_by_hacked: dict[bool, list[bool]] = {True: [], False: []}
    for run in runs:
        diagnosis = read_diagnosis(run.run)
        causes = [cause["cause"] for cause in diagnosis["causes"]]
        rank = causes.index(HACKING_CAUSE) + 1 if HACKING_CAUSE in causes else None
        onset = diagnosis["onset"]
        named_by_hacked[run.hacked > 0].append(rank is not None)
        cells = (
            run.run,
            run.labelled,
            run.hacked,
            "" if run.first_step is None else run.first_step,
            diagnosis["verdict"],
            rank or "not named",
            "" if onset is None else f"{onset['healthy']} to {onset['sick']}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    shares = [
        "| | runs | share | 95 % interval |",
        "|---|---|---|---|",
        share_row("runs with hacked completions in which reward hacking is named", named_by_hacked[True]),
        share_row("other labelled runs in which it is named", named_by_hacked[False]),
    ]
    return "\n".join([*lines, "", *shares])
