"""Diagnose the run every few steps during training, report changes and apply stop rules."""

import logging
from collections.abc import Mapping

from backend.analysis.diagnosis.findings import Diagnosis
from backend.analysis.diagnosis.news import News, news
from backend.analysis.diagnosis.online import GrowingLog, is_due, last_due
from backend.analysis.diagnosis.outcome import Interval
from backend.analysis.diagnosis.store import load_parent_config, load_series, make_columns
from backend.config.run import RunConfig
from backend.config.sections import StopOnDiagnosis
from backend.runs.checkpoints import KeptFor
from worker.outcome import Outcome
from worker.recording.recorder import Recorder
from worker.recording.records import VerdictRecord
from worker.training.stop_rules import apply_rules

logger = logging.getLogger(__name__)


class OnlineDiagnosis:
    """Diagnoses a run from its step metrics. An error in a detector is logged and never ends training."""

    def __init__(self, config: RunConfig, recorder: Recorder) -> None:
        self._document = config.model_dump(mode="json")
        self._rules = [rule for rule in config.stop_rules if isinstance(rule, StopOnDiagnosis)]
        self._recorder = recorder
        self._log = GrowingLog(self._document)
        self._step = self._judged_step = 0
        self._last: Diagnosis | None = None
        """Diagnosis at the last step at which it was due."""
        self._outcome: Outcome | None = None

    def begin(self, step: int) -> None:
        """Start after a step with the recorded metrics up to it, which a fork inherits."""
        run_id = self._recorder.run_id
        recorded_series = self._recorder.read(lambda session: load_series(session, run_id))
        parent_config = self._recorder.read(lambda session: load_parent_config(session, run_id))
        past_series = {name: series.between(0, step) for name, series in recorded_series.items()}
        self._log = GrowingLog(self._document, past_series, parent_config)
        self._step, due = step, last_due(step)
        self._last = self._diagnosis(due) if due else None
        self._recorder.verdict(VerdictRecord(make_columns(self._last, due if self._last else None)))

    def take(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a step's metrics and, if it is due, diagnose the run."""
        self._step, self._outcome = step, None
        self._log.add_step(step, metrics)
        if is_due(step):
            self._judge(is_told=True)

    def end(self, *, is_final: bool) -> None:
        """Diagnose the run at its end. A run that will continue reports changes at its next due step."""
        if self._step and self._judged_step != self._step:
            self._judge(is_told=is_final)

    def reason_to_end(self) -> Outcome | None:
        """Return the outcome of the first stop rule that holds since this step."""
        return self._outcome

    def _judge(self, *, is_told: bool) -> None:
        step = self._step
        diagnosis = self._diagnosis(step)
        if diagnosis is None:
            return
        try:
            changes = news(self._last, diagnosis) if is_told else []
        except Exception:
            logger.exception("the diagnosis of step %d cannot be told", step)
            return
        self._recorder.verdict(VerdictRecord(make_columns(diagnosis, step), _new_onsets(changes, diagnosis)))
        for change in changes:
            self._recorder.event("diagnosis", change.level, change.message, change.data, step=step)
        if is_told:
            self._outcome = apply_rules(self._rules, self._last, diagnosis)
            self._last = diagnosis
        self._judged_step = step

    def _diagnosis(self, step: int) -> Diagnosis | None:
        try:
            return self._log.diagnosis(up_to=step)
        except Exception:
            logger.exception("the run cannot be diagnosed at step %d", step)
            return None


def _new_onsets(changes: list[News], diagnosis: Diagnosis) -> dict[KeptFor, Interval]:
    """Return the onset of a new verdict, and the earliest onset of all warnings if there is a new one."""
    onsets: dict[KeptFor, Interval] = {
        change.kind: change.onset
        for change in changes
        if change.kind == "verdict" and change.onset is not None
    }
    if any(change.kind == "warning" for change in changes):
        onsets["warning"] = min(
            (warning.onset for warning in diagnosis.warnings), key=lambda onset: onset.healthy
        )
    return onsets
