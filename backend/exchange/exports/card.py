"""Create model cards: README.md of an exported model, with data, recipe, curves, evaluation and versions."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.config.formula.loss import formula
from backend.config.metrics import interval_names, is_interval_end
from backend.config.presets import PRESETS
from backend.config.problems import HubProblem
from backend.config.run import RunConfig
from backend.exchange.exports.facts import CURVES, CardFacts
from backend.exchange.exports.markdown import fence_code, format_table, inline, quote_yaml

MAX_ROWS = 10
"""Maximum number of steps in the table of curves."""

HUB_NAME_PATTERN = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
MAX_VALUE = 120
"""Maximum length of a value in the table of settings; the config below contains the complete value."""


REPRODUCE = (
    "The complete config of the run. Send it as `base` to `POST /api/v1/experiments` of GRPO Lab. The same "
    "values need the same versions on the same kind of device."
)


def model_card(card: CardFacts, *, is_merged: bool = True) -> str:
    """Return the card as Markdown with YAML front matter; `is_merged` means a complete model instead of an
    adapter.
    """
    sections = [
        _front_matter(card, is_merged=is_merged),
        f"# {inline(card.name)}",
        _introduction(card, is_merged=is_merged),
        *([f"Notes of its makers:\n\n{fence_code(card.notes)}"] if card.notes.strip() else []),
        "## Data",
        _data(card.config),
        "## Recipe",
        _recipe(card.config),
        "## Curves",
        _curves(card),
        "## Evaluation",
        _evaluation(card),
        "## Diagnosis",
        _diagnosis(card),
        "## Versions",
        _versions(card),
        "## Reproduce",
        REPRODUCE,
        fence_code(json.dumps(card.config.model_dump(mode="json"), indent=1), "json"),
    ]
    return "\n\n".join(sections) + "\n"


def _front_matter(card: CardFacts, *, is_merged: bool) -> str:
    base = card.config.policy.name
    is_peft = card.is_adapter and not is_merged
    lines = ["license: unknown", f"library_name: {'peft' if is_peft else 'transformers'}"]
    lines.append("pipeline_tag: text-generation")
    if HUB_NAME_PATTERN.fullmatch(base):
        relation = "adapter" if is_peft else "finetune"
        lines += [f"base_model: {quote_yaml(base)}", f"base_model_relation: {relation}"]
    preset = card.config.preset
    tags = [tag for tag in dict.fromkeys(["grpo", "reinforcement-learning", preset]) if tag]
    lines += ["tags:", *(f"- {quote_yaml(tag)}" for tag in tags)]
    if datasets := sorted(
        {problem.dataset for problem in card.config.problems if isinstance(problem, HubProblem)}
    ):
        lines += ["datasets:", *(f"- {quote_yaml(name)}" for name in datasets)]
    return "\n".join(["---", *lines, "---"])


def _introduction(card: CardFacts, *, is_merged: bool) -> str:
    policy = card.config.policy
    revision = f", revision {inline(policy.revision)}" if policy.revision else ""
    kind = "The LoRA adapter of" if card.is_adapter and not is_merged else "A model trained from"
    trained_phrase = ", trained" if card.is_adapter and not is_merged else ""
    merging_sentence = (
        " A LoRA adapter was trained and merged into it." if card.is_adapter and is_merged else ""
    )
    return (
        f"{kind} {inline(policy.name)}{revision}{trained_phrase} "
        "by reinforcement learning in GRPO Lab: the state "
        f"after step {card.step} of {card.config.steps}, variant {inline(card.variant)}, seed "
        f"{card.config.seed}.{merging_sentence} "
        "The license of the result is not known to GRPO Lab: that of the base "
        "model and those of the data apply."
    )


def _data(config: RunConfig) -> str:
    components_by_title = {"problems": config.problems, "rewards": config.rewards}
    return "\n\n".join(
        format_table(
            [title, "weight", "settings"],
            [
                [component.name, f"{component.weight:g}", _settings(component.model_dump(mode="json"))]
                for component in components
            ],
        )
        for title, components in components_by_title.items()
    )


def _settings(fields: Mapping[str, Any]) -> str:
    phrases = [
        f"{name}: {_value(value)}"
        for name, value in fields.items()
        if name not in {"type", "name", "weight"} and value not in ("", None, [], {})
    ]
    return ", ".join(phrases)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "..."


def _recipe(config: RunConfig) -> str:
    preset = PRESETS.get(config.preset)
    preset_text = f"Preset {inline(preset.title)} ({inline(preset.source)})." if preset else "No preset."
    changed_fields = dict(_differences(RunConfig().model_dump(mode="json"), config.model_dump(mode="json")))
    skipped_fields = ("problems", "rewards", "seed", "preset")
    knobs = [[path, _value(value)] for path, value in changed_fields.items() if path not in skipped_fields]
    paragraphs = [f"{preset_text} The run minimises", fence_code(formula(config)["text"], "text")]
    if knobs:
        paragraphs += [
            "All fields that differ from the defaults of GRPO Lab:",
            format_table(["field", "value"], knobs),
        ]
    return "\n\n".join(paragraphs)


def _differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of every different field; a section of another type is listed completely."""
    if isinstance(new, dict) and new:
        is_same = isinstance(old, dict) and old.get("type") == new.get("type")
        for name, value in new.items():
            old_value = old.get(name) if is_same else None
            yield from _differences(old_value, value, f"{path}.{name}" if path else name)
    elif old != new:
        yield path, new


def _curves(card: CardFacts) -> str:
    names = [name for name in CURVES if name in card.curves and len(card.curves[name])]
    if not names:
        return "No metrics were recorded up to this step."
    rows = [
        [str(step), *(_format_value_at(card, name, int(step)) for name in names)]
        for step in _choose_steps(card, names)
    ]
    return format_table(["step", *names], rows)


def _choose_steps(card: CardFacts, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the first and last step, and steps in between at which the most metrics have a value."""
    all_steps = np.concatenate([card.curves[name].steps for name in names])
    steps, counts = np.unique(all_steps, return_counts=True)
    fullest_steps = _spread(steps[counts == counts.max()], MAX_ROWS - 2)
    other_steps = (
        steps[[0, -1]]
        if len(fullest_steps) >= MAX_ROWS // 2
        else _spread(steps, MAX_ROWS - len(fullest_steps))
    )
    return np.unique(np.concatenate([fullest_steps, other_steps]))


def _spread(steps: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    indices = np.unique(np.linspace(0, len(steps) - 1, min(limit, len(steps))).round().astype(np.int64))
    spread: NDArray[np.int64] = steps[indices]
    return spread


def _format_value_at(card: CardFacts, name: str, step: int) -> str:
    points = card.curves[name]
    index = int(np.searchsorted(points.steps, step))
    is_there = index < len(points) and points.steps[index] == step
    return f"{points.values[index]:.4g}" if is_there else ""


def _evaluation(card: CardFacts) -> str:
    rows = []
    for name, points in sorted(card.curves.items()):
        if name.startswith("eval/") and len(points) and not is_interval_end(name):
            step, value = int(points.steps[-1]), float(points.values[-1])
            rows.append([name, f"{value:.4g}", _interval(card, name, value, step), str(step)])
    if not rows:
        return "The run was not evaluated on held-out problems up to this step."
    prompts = card.config.evaluation.prompts
    head = format_table(["metric", "value", "95 % interval", "step"], rows)
    source = f"Up to {prompts:,} held-out prompts. Intervals over prompts: Wilson's."
    return f"{head}\n\n{source}"


def _interval(card: CardFacts, name: str, share: float, step: int) -> str:
    """Return the recorded interval of a suite, or Wilson's interval of held-out accuracy; otherwise empty."""
    bounds = [card.curves.get(end) for end in interval_names(name)]
    recorded_bounds = [
        float(points.values[-1]) for points in bounds if points and int(points.steps[-1]) == step
    ]
    if len(recorded_bounds) == len(bounds):
        low, high = recorded_bounds
    elif name == "eval/accuracy" and 0 <= share <= 1:
        low, high = wilson(share, card.config.evaluation.prompts)
    else:
        return ""
    return f"{low:.3f} to {high:.3f}"


def wilson(share: float, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's score interval of a share that was measured on `count` trials (JASA 22, 1927)."""
    center = (share + z * z / (2 * count)) / (1 + z * z / count)
    half_width = (
        z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    )
    return max(0.0, center - half_width), min(1.0, center + half_width)


def _diagnosis(card: CardFacts) -> str:
    if not card.verdict:
        return "The run has no verdict."
    text = f"Verdict on the run up to step {card.last_step}: {card.verdict.replace('_', ' ')}."
    if card.onset:
        text += f" What made it fall began between the steps {card.onset[0]} and {card.onset[1]}."
    return text + (f" First cause: {inline(card.cause.replace('_', ' '))}." if card.cause else "")


def _versions(card: CardFacts) -> str:
    text_versions = {name: value for name, value in card.versions.items() if isinstance(value, str)}
    rows = [[name, value] for name, value in {**text_versions, "device": card.device}.items() if value]
    return format_table(["what", "version"], rows) if rows else "Not recorded."
