"""Files of verl: the JSONL of its `file` logger and its rollout dumps. `console` reads its printed output.

    {"step": 12, "data": {"actor/entropy": 0.3, ...}}

    {"input": "1+1=", "output": "2", "gts": "2", "score": 1.0, "step": 12, "acc": true}

Format: verl.utils.tracking.FileLogger and
verl.trainer.ppo.ray_trainer.RayPPOTrainer._dump_generations, versions 0.5 to 0.6.
"""

from typing import Any

from backend.config.messages import question_text
from backend.exchange.imports.completions import Completions, Sample, parse_reward_terms, parse_step
from backend.exchange.imports.log import Log, build_completion_log
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import Table, as_number, flatten_cells
from backend.exchange.imports.text_formats import records
from backend.rollouts.foreign import Split


def read_verl_file(file: LogFile) -> Log:
    """Return the log of a JSONL file; lines without `data` are left out."""
    table = Table(file.max_values)
    for line, row in records(file.content, table):
        data = row.get("data")
        if isinstance(data, dict):
            table.add(line, [("step", row.get("step")), *flatten_cells(data)])
        else:
            table.bad.add(line, "has no data")
    return Log(table, step="step")


def read_verl_rollouts(file: LogFile, *, split: Split) -> Log:
    """Return the completions of `trainer.rollout_data_dir` or `trainer.validation_data_dir`, one per line."""
    completions, table = Completions(), Table(file.max_values)
    for line, row in records(file.content, table):
        step = parse_step(row.pop("step", None))
        if step is None or not isinstance(row.get("output"), str):
            table.bad.add(line, "has no step or no output")
            continue
        prompt, output, answer = (question_text(row.pop(name, None)) for name in ("input", "output", "gts"))
        score, correct = as_number(row.pop("score", None)), _truth(row.get("acc"))
        completions.add(
            Sample(
                step,
                prompt,
                output,
                answer,
                score,
                parse_reward_terms(row.items()),
                correct=correct,
                split=split,
            )
        )
    return build_completion_log(completions, table, origin="verl")


def _truth(value: Any) -> bool | None:
    """Return whether a completion is correct; None unless its accuracy is 0 or 1."""
    number = as_number(value)
    return bool(number) if number in {0.0, 1.0} else None
