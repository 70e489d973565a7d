"""Read completions written by ms-swift, NeMo-RL, AReaL, SkyRL, prime-rl, slime, miles, and scripts.

    {"step": ["5", "5"], "prompt": [[...], [...]], "completion": ["..", ".."], "Accuracy": [1.0, 0.0]}
    {"content": ["question", "answer"], "rewards": 1.0, "input_lengths": 57}         train_data_step12.jsonl
    {"prompt": "..", "completion": "..", "reward": 1.0, "tail_version": 3}
    {"input_prompt": "..", "output_response": "..", "score": [0.0, 1.0], "data_source": ".."}
    {"nodes": [{"message": {"role": "user", ...}}, ...], "rewards": {"correct": 1.0}, "run": {"step": 3}}

If a row has no step, it is taken from the name of its file or directory, such as `step_12`. slime and miles
write torch files, {"rollout_id": 3, "samples": [{"prompt": "..", "response": "..", "reward": 1.0}]}. Format:
swift.rlhf_trainers.grpo_trainer 4.6, nemo_rl.utils.logger 0.5, areal.infra.workflow_executor 1.0,
skyrl.train.utils.trainer_utils 0.3, prime-rl of August 2026 and slime.ray.rollout of August 2026.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from backend.config.messages import question_text
from backend.exchange.imports.completions import Completions, Sample, parse_reward_terms, parse_step
from backend.exchange.imports.log import Log, build_completion_log
from backend.exchange.imports.log_file import LogFile, invalid_reply
from backend.exchange.imports.table import BadLog, Table, as_number
from backend.exchange.imports.text_formats import records
from backend.rollouts.foreign import Split

PROMPT_COLUMNS = ("prompt", "input_prompt", "question", "problem", "messages")
COMPLETION_COLUMNS = ("completion", "output_response", "response", "generation", "output")
REWARD_COLUMNS = ("reward", "rewards", "score", "total_reward")
ANSWER_COLUMNS = ("answer", "ground_truth", "solution", "gts", "label")
STEP_COLUMNS = ("step", "global_step", "training_step", "tail_version")
MAX_REASON = 300
MAX_OF_ROW = 4_096
"""Maximum number of completions in one row of columns."""

_STEP_PATTERN = re.compile(r"(?:^|[/_])(?:global_)?step_?(\d{1,9})(?=[/_.]|$)")
_HELD_OUT_PATTERN = re.compile(r"(?<![a-z])e?val(?!ue)")
_NO_TERMS = {
    "input_lengths",
    "idx",
    "sample_idx",
    "seqlen",
    "prompt_len",
    "head_version",
    "example_id",
    "task_id",
}


class _Texts(NamedTuple):
    prompt: str
    completion: str


def is_dump(row: Mapping[str, Any]) -> bool:
    """Return whether an object is a completion with its reward, or columns of several."""
    has_reward = any(name in row for name in REWARD_COLUMNS) or "advantages" in row
    return has_reward and (_has_texts(row) or isinstance(row.get("nodes"), list))


def _has_texts(row: Mapping[str, Any]) -> bool:
    names = ("content", *COMPLETION_COLUMNS) if "rewards" in row else COMPLETION_COLUMNS
    return any(isinstance(row.get(name), str | list) for name in names)


def read_dump(file: LogFile) -> Log:
    """Return the log of a dump with a completion or a batch per row; raise BadLog."""
    table = Table(file.max_values)
    batches = records(file.content, table, is_jsonl=True)
    rows = ((line, row) for line, batch in batches for row in _rows(batch))
    return log_of_rows(rows, table, file.name)


def read_torch_dump(file: LogFile) -> Log:
    """Return the log of a torch file; raise BadLog if it contains more than plain values and tensors."""
    return log_of_rows(_rows_of_torch(file), Table(file.max_values), file.name, origin="slime")


def _rows_of_torch(file: LogFile) -> Iterator[tuple[int, dict[str, Any]]]:
    row, count = 0, 1
    while row < count:
        answer = file.run_operation("torch-completions", row=row)
        if isinstance(reason := answer.get("reason"), str):
            raise BadLog(reason[:MAX_REASON])
        rows, total = answer.get("rows"), answer.get("count")
        if type(total) is not int or not isinstance(rows, list) or (not rows and total):
            raise invalid_reply()
        if not all(isinstance(sample, dict) for sample in rows):
            raise invalid_reply()
        count = total
        yield from enumerate(rows, row + 1)
        row += len(rows)


def split_of_file(name: str) -> Split:
    """Return the split of a dump: `eval` if a word of its path starts with `val` or `eval`."""
    return "eval" if _HELD_OUT_PATTERN.search(name.lower()) else "train"


def log_of_rows(rows: Iterable[tuple[int, dict[str, Any]]], table: Table, name: str, origin: str = "") -> Log:
    """Return the log of a dump's rows; rows without a completion or step are reported."""
    completions = Completions()
    steps_in_name = _STEP_PATTERN.findall(name)
    split = split_of_file(name)
    for line, row in rows:
        if completions.is_full:
            completions.beyond += 1
            continue
        step = _step(row, int(steps_in_name[-1]) if steps_in_name else None)
        texts = _texts(row)
        if step is None or texts is None:
            reason = "has no completion" if texts is None else "has no step, nor has its file's name"
            table.bad.add(line, reason)
            continue
        completions.add(_sample(row, step, texts, split))
    return build_completion_log(completions, table, origin)


def _rows(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch with lists as columns, like ms-swift's, or the batch as a row."""
    columns = {name: value for name, value in batch.items() if isinstance(value, list)}
    completions = next((columns[name] for name in COMPLETION_COLUMNS if name in columns), None)
    if completions is None or not isinstance(columns.get("step", columns.get("prompt")), list):
        yield batch
        return
    for number in range(min(len(completions), MAX_OF_ROW)):
        yield {name: value[number] for name, value in columns.items() if number < len(value)}


def _step(row: dict[str, Any], in_name: int | None) -> int | None:
    run = row.get("run")
    values = [row.get(name) for name in STEP_COLUMNS] + ([run.get("step")] if isinstance(run, dict) else [])
    for value in values:
        number = as_number(value)
        if number is not None and (step := parse_step(number)) is not None:
            return step
    return in_name


def _texts(row: dict[str, Any]) -> _Texts | None:
    nodes = row.get("nodes")
    if isinstance(nodes, list):
        return _texts_of_messages([node.get("message", node) for node in nodes if isinstance(node, dict)])
    completion = next(
        (row[name] for name in COMPLETION_COLUMNS if isinstance(row.get(name), str | list)), None
    )
    if completion is not None:
        prompt = next((row[name] for name in PROMPT_COLUMNS if row.get(name)), "")
        return _Texts(question_text(prompt), question_text(completion))
    content = row.get("content")
    if isinstance(content, list) and content and all(isinstance(text, str) for text in content):
        return _Texts("\n\n".join(content[:-1]), content[-1])
    return _Texts("", content) if isinstance(content, str) else None


def _texts_of_messages(messages: list[Any]) -> _Texts | None:
    """Return prompt and completion; the prompt is everything before the first message of the policy."""
    texts = [message for message in messages if isinstance(message, dict)]
    first_reply = next((index for index, text in enumerate(texts) if text.get("role") == "assistant"), None)
    if first_reply is None:
        return None
    return _Texts(question_text(texts[:first_reply]), question_text(texts[first_reply:]))


def _sample(row: dict[str, Any], step: int, texts: _Texts, split: Split) -> Sample:
    reward_field = row.get("rewards")
    terms = parse_reward_terms(reward_field.items()) if isinstance(reward_field, dict) else {}
    reward = next((_reward(row[name]) for name in REWARD_COLUMNS if _reward(row.get(name)) is not None), None)
    field_names = {
        *PROMPT_COLUMNS,
        *COMPLETION_COLUMNS,
        *REWARD_COLUMNS,
        *ANSWER_COLUMNS,
        *STEP_COLUMNS,
        *_NO_TERMS,
        "advantage",
        "advantages",
        "acc",
    }
    other_terms = parse_reward_terms((name, value) for name, value in row.items() if name not in field_names)
    if reward is None:
        reward = math.fsum((terms or other_terms).values()) if terms or other_terms else None
    correct = as_number(row.get("acc", row.get("correct")))
    return Sample(
        step,
        texts.prompt,
        texts.completion,
        next((question_text(row[name]) for name in ANSWER_COLUMNS if row.get(name) is not None), ""),
        reward,
        terms or other_terms,
        as_number(row.get("advantage", row.get("advantages"))),
        bool(correct) if correct in {0.0, 1.0} else None,
        split,
    )


def _reward(value: Any) -> float | None:
    """Return a number, or the sum of the rewards of a completion's tokens."""
    if isinstance(value, list):
        numbers = [number for item in value if (number := as_number(item)) is not None]
        return sum(numbers) if numbers else None
    return as_number(value)
