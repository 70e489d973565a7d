"""Logs of verl: the JSONL file of its `file` logger, lines of its `console` logger, and its rollout dumps.

    {"step": 12, "data": {"actor/entropy": 0.3, ...}}
    (TaskRunner pid=7) step:12 - actor/entropy:0.3 - critic/score/mean:np.float64(0.5)

    {"input": "1+1=", "output": "2", "gts": "2", "score": 1.0, "step": 12, "acc": true}

Format: verl.utils.tracking.FileLogger, verl.utils.logger.LocalLogger and
verl.trainer.ppo.ray_trainer.RayPPOTrainer._dump_generations, versions 0.5 to 0.6.
"""

import re
from collections.abc import Iterator
from typing import Any

from backend.config.messages import question_text
from backend.exchange.imports.completions import Completions, Sample, step_of, terms_of
from backend.exchange.imports.lines import text_lines
from backend.exchange.imports.log import Log, log_of
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import BadLog, Table, as_number, flat
from backend.exchange.imports.text_formats import records
from backend.rollouts.foreign import Split

CONSOLE_LINE = re.compile(r"(?:^|[\s)])step:(\d+) - (?=\S+:)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NUMPY = re.compile(r"^np\.\w+\((.*)\)$|^array\((.*)\)$")


def read_verl_file(file: LogFile) -> Log:
    """Return the JSONL file; a line without `data` is left out."""
    table = Table(file.most_values)
    for line, row in records(file.content, table):
        data = row.get("data")
        if isinstance(data, dict):
            table.add(line, [("step", row.get("step")), *flat(data)])
        else:
            table.bad.add(line, "has no data")
    return Log(table, step="step")


def read_verl_rollouts(file: LogFile, *, split: Split) -> Log:
    """Completions that `trainer.rollout_data_dir` or `trainer.validation_data_dir` keeps, one a line."""
    completions, table = Completions(), Table(file.most_values)
    for line, row in records(file.content, table):
        step = step_of(row.pop("step", None))
        if step is None or not isinstance(row.get("output"), str):
            table.bad.add(line, "has no step or no output")
            continue
        prompt, output, answer = (question_text(row.pop(name, None)) for name in ("input", "output", "gts"))
        score, correct = as_number(row.pop("score", None)), _truth(row.get("acc"))
        completions.add(
            Sample(step, prompt, output, answer, score, terms_of(row.items()), correct=correct, split=split)
        )
    return log_of(completions, table, origin="verl")


def _truth(value: Any) -> bool | None:
    """Return whether a completion is right, if its accuracy is 0 or 1."""
    number = as_number(value)
    return bool(number) if number in {0.0, 1.0} else None


def read_verl_console(file: LogFile) -> Log:
    """Lines of metrics among whatever else was printed."""
    table, other_lines = Table(file.most_values), 0
    for line, text in text_lines(file.content):
        plain = _COLOURS.sub("", text)
        match = CONSOLE_LINE.search(plain)
        if match is None:
            other_lines += 1
            continue
        table.add(line, [("step", float(match[1])), *_cells(plain[match.end() :])])
    if not len(table):
        raise BadLog("has no line like `step:12 - actor/entropy:0.3`, which verl prints")
    log = Log(table, step="step")
    if other_lines:
        log.facts.notes.append(f"{other_lines:,} other lines of output were passed over.")
    return log


def _cells(text: str) -> Iterator[tuple[str, Any]]:
    for metric_text in text.rstrip().split(" - "):
        name, _, value = metric_text.rpartition(":")
        if name:
            numpy = _NUMPY.match(value)
            yield name, (numpy[1] or numpy[2]) if numpy else value
