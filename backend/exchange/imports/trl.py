"""`trainer_state.json` of TRL and every other trainer of Hugging Face: one document with `log_history`.

Format: transformers.trainer_callback.TrainerState, versions 4 and 5. A row of `log_history` has `step` and
`epoch`; rows of an evaluation have names that begin with `eval_`.
"""

from io import BytesIO
from typing import Any

from backend.exchange.imports.lines import MAX_DOCUMENT_BYTES, BrokenDocument, document
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import BadLog, Table, as_number, flatten_cells
from backend.exchange.imports.text_formats import read_broken

KEPT_FIELDS = (
    "max_steps", "num_train_epochs", "logging_steps", "eval_steps", "save_steps", "train_batch_size",
    "num_input_tokens_seen", "total_flos", "best_metric", "best_global_step", "best_model_checkpoint",
    "trial_name", "trial_params",
)  # fmt: skip
"""Fields of the state that describe the setup of the run."""

SUMMARY_COLUMNS = (
    "train_runtime",
    "train_samples_per_second",
    "train_steps_per_second",
    "total_flos",
    "train_loss",
)
"""Columns of the last row, which summarises the training and is not a step."""


def read_trl(file: LogFile) -> list[Log]:
    """Return the log; raise BadLog if `log_history` is missing. The complete rows of a truncated file are
    read.
    """
    try:
        state = document(file.content)
    except BrokenDocument as error:
        file.content.seek(0)
        rows = file.content.read(MAX_DOCUMENT_BYTES).partition(b'"log_history"')[2]
        return read_broken(file, BytesIO(rows), error)
    return [_read_log(state, file)]


def _read_log(state: Any, file: LogFile) -> Log:
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise BadLog("has no log_history, which trainer_state.json holds")
    table, metadata = Table(file.max_values), _read_metadata(state)
    for number, row in enumerate(history, 1):
        if not isinstance(row, dict):
            table.bad.add(0, f"entry {number} of log_history is not an object")
        elif "train_runtime" in row:
            metadata.config["training_summary"] = {name: row[name] for name in SUMMARY_COLUMNS if name in row}
        else:
            table.add(0, flatten_cells(row))
    return Log(table, metadata, step="step")


def _read_metadata(state: dict[str, Any]) -> LogMetadata:
    config = {name: state[name] for name in KEPT_FIELDS if state.get(name) is not None}
    steps, last_step = as_number(state.get("max_steps")), as_number(state.get("global_step"))
    metadata = LogMetadata(config=config, steps=int(steps) if steps and 0 < steps < 2**31 else None)
    if steps and last_step is not None and last_step < steps:
        metadata.notes.append(f"The log ends at step {last_step:.0f} of {steps:.0f}.")
    return metadata
