"""Judge public logs of other trainers, and compare the verdicts with labels by eye.

    python -m benchmarks.diagnosis.foreign FOLDER    the logs lie in FOLDER/<owner>/<repository>/<path>

`foreign.jsonl` names the source of each log and its label, which was given before any detector had read the
log. The logs belong to their authors and are not part of this repository: a log that is not in the folder
keeps its label and is counted as missing.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.log import Log, Series
from backend.exchange.imports.formats import read_logs
from backend.exchange.imports.plan import plan_import
from backend.exchange.imports.table import BadLog
from benchmarks.diagnosis.results import share_row

RESULTS_PATH = Path(__file__).with_name("results-foreign.md")
LABELS_PATH = Path(__file__).with_name("foreign.jsonl")
FALLEN_VERDICTS = {"collapsed", "declining", "recovered"}


class ForeignLog(BaseModel):
    """Source and label of a public log."""

    model_config = ConfigDict(extra="forbid")

    repository: str
    path: str
    run: int = 0
    """Number of the run among those of the log, from 0."""
    label: Literal["healthy", "fell", "never_learned", "unclear"]
    """What a person says who sees the curves. Of a run that is *unclear* only a fall is a false alarm."""
    onset: tuple[int, int] | None = None
    """Steps between which the fall began."""
    causes: list[str] = []
    """Causes that are right as the first one; empty if the log does not tell."""
    reason: str
    """The label in one sentence, with the numbers that it follows from."""
    shortened: str = ""
    """What the judged copy leaves out of the log."""


class Verdict(BaseModel):
    """What import and diagnosis say about a log."""

    refusal: str = ""
    verdict: str = ""
    onset: tuple[int, int] | None = None
    causes: list[str] = []


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge public logs of other trainers.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    logs = [ForeignLog.model_validate_json(line) for line in LABELS_PATH.read_text("utf-8").splitlines()]
    paths = [folder / log.repository / log.path for log in logs]
    judged = [
        (log, judge_file(path, log.run)) for log, path in zip(logs, paths, strict=True) if path.exists()
    ]
    text = format_table(judged, missing_count=len(logs) - len(judged))
    RESULTS_PATH.write_text(text, encoding="utf-8")
    print(text)


def judge_file(path: Path, run: int) -> Verdict:
    """Return the diagnosis of one run in a log, or the sentence with which it is refused."""
    try:
        with path.open("rb") as file:
            _, logs = read_logs(file, path.name)
        series = plan_import(logs[run]).series
    except BadLog as error:
        return Verdict(refusal=str(error))
    diagnosis = diagnose(Log({name: Series(values.steps, values.values) for name, values in series.items()}))
    onset = diagnosis.outcome.onset
    return Verdict(
        verdict=diagnosis.outcome.verdict,
        onset=onset and (onset.healthy, onset.sick),
        causes=[cause.finding.cause for cause in diagnosis.causes],
    )


def format_table(judged: Iterable[tuple[ForeignLog, Verdict]], *, missing_count: int) -> str:
    """Return shares with their intervals and one row per log, in Markdown."""
    pairs = list(judged)
    read = [(log, verdict) for log, verdict in pairs if not verdict.refusal]
    fell = [(log, verdict) for log, verdict in read if log.label == "fell"]
    found = [(log, verdict) for log, verdict in fell if verdict.verdict in FALLEN_VERDICTS]
    rows = [
        "| public logs | logs | share | 95 % interval |",
        "|---|---|---|---|",
        share_row("that are read", [not verdict.refusal for _, verdict in pairs]),
        share_row("that fell, called fallen", [verdict.verdict in FALLEN_VERDICTS for _, verdict in fell]),
        share_row("that did not fall, called fallen", [
            verdict.verdict in FALLEN_VERDICTS for log, verdict in read if log.label != "fell"
        ]),
        share_row("that learned, called healthy", [
            verdict.verdict == "healthy" for log, verdict in read if log.label == "healthy"
        ]),
        share_row("that never learned, called so", [
            verdict.verdict == "never_learned" for log, verdict in read if log.label == "never_learned"
        ]),
        share_row("found falls dated right", [is_dated_right(*pair) for pair in found if pair[0].onset]),
        share_row("found falls with the right first cause", [
            verdict.causes[:1] != [] and verdict.causes[0] in log.causes
            for log, verdict in found if log.causes
        ]),
    ]  # fmt: skip
    if missing_count:
        rows.append(f"\n{missing_count} labelled logs were not at hand.")
    rows += ["", "| log | label | verdict | first cause |", "|---|---|---|---|"]
    for log, verdict in pairs:
        label = f"{log.label.replace('_', ' ')}{_format_onset(log.onset)}"
        says = verdict.refusal or f"{verdict.verdict.replace('_', ' ')}{_format_onset(verdict.onset)}"
        details = [f"run {log.run + 1}"] * (log.run > 0) + ["shortened"] * bool(log.shortened)
        name = f"{log.repository}: {Path(log.path).name}" + (f" ({', '.join(details)})" if details else "")
        rows.append(f"| {name} | {label} | {says} | {(verdict.causes or [''])[0]} |")
    return "\n".join(rows) + "\n"


def is_dated_right(log: ForeignLog, verdict: Verdict) -> bool:
    """Return whether the interval of the onset meets that of the label."""
    if log.onset is None or verdict.onset is None:
        return False
    return verdict.onset[0] <= log.onset[1] and log.onset[0] <= verdict.onset[1]


def _format_onset(onset: tuple[int, int] | None) -> str:
    return f", steps {onset[0]} to {onset[1]}" if onset else ""


if __name__ == "__main__":
    main()
