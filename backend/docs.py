"""The generated tables of the pages in docs/: `make docs`.

Each table stands in one page, between `<!-- NAME -->` and `<!-- /NAME -->`; the rest is written by hand.
"""

import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from backend.config.metrics import FAMILIES, METRICS, Metric
from backend.config.presets import PRESETS
from backend.config.run import RunConfig
from backend.monitoring.prometheus import GAUGES
from backend.settings import Settings

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs"
PLACE = re.compile(r"(<!-- ([^/\n][^\n]*) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
"""A table's place in a page."""

KNOBS: tuple[tuple[str, str], ...] = (
    ("adv.baseline", "objective.advantage"),
    ("adv.scale", "objective.advantage[group_mean].scale"),
    ("adv.ddof", "objective.advantage[group_mean].scale[group_std].ddof"),
    ("adv.eps", "objective.advantage[group_mean].scale[group_std].eps"),
    ("adv.multi_reward", "objective.advantage[group_mean].multi_reward"),
    ("adv.group_sum", "objective.advantage[group_mean].group_sum"),
    ("gae.gamma", "objective.advantage[critic].gamma"),
    ("gae.lambda_policy", "objective.advantage[critic].lambda_policy"),
    ("gae.lambda_critic", "objective.advantage[critic].lambda_critic"),
    ("gae.n_step", "objective.advantage[critic].n_step"),
    ("gae.scale", "objective.advantage[critic].scale"),
    ("value.coef", "objective.value.coef"),
    ("value.clip", "objective.value.clip"),
    ("value.lr", "objective.value.lr_factor"),
    ("value.epochs", "objective.value.epochs"),
    ("value.pretrain_steps", "objective.value.pretrain_steps"),
    ("ratio.level", "objective.ratio"),
    ("ratio.old", "objective.ratio[token].old"),
    ("logprobs.temperature", "objective.ratio[token].logprob_temperature"),
    ("clip.rule", "objective.surrogate"),
    ("clip.eps_low", "objective.surrogate[ppo_clip].eps_low"),
    ("clip.eps_high", "objective.surrogate[ppo_clip].eps_high"),
    ("clip.c", "objective.surrogate[ppo_clip].dual_clip"),
    ("sapo.tau_pos", "objective.surrogate[sapo].tau_pos"),
    ("sapo.tau_neg", "objective.surrogate[sapo].tau_neg"),
    ("dynamic.r_max", "objective.surrogate[dynamic].r_max"),
    ("agg", "objective.aggregation"),
    ("agg.l_max", "objective.aggregation[seq_mean_token_sum_norm].l_max"),
    ("kl.est", "objective.kl"),
    ("kl.coef", "objective.kl[k3].coef"),
    ("kl.controller", "objective.kl[k3].controller"),
    ("kl.to", "objective.kl[k3].to"),
    ("ref.update", "objective.reference"),
    ("ref.update.n", "objective.reference[every_n].n"),
    ("ref.update.reset_opt", "objective.reference[every_n].reset_optimizer"),
    ("kl.agg", "objective.kl[k3].aggregation"),
    ("kl.place", "objective.kl[k1].place"),
    ("offp.weight", "objective.correction"),
    ("offp.opsm", "objective.off_policy_mask"),
    ("offp.opsm.delta", "objective.off_policy_mask[opsm].delta"),
    ("offp.opsm.src", "objective.off_policy_mask[opsm].source"),
    ("offp.router_shift", "objective.router[router_shift].gamma_min"),
    ("ent.coef", "objective.entropy"),
    ("ent.target", "objective.entropy[adaptive].target"),
    ("ent.step", "objective.entropy[adaptive].step"),
    ("nll.coef", "objective.nll[positive].coef"),
    ("token.weight", "objective.token_weight"),
    ("filter.groups", "filters.groups"),
    ("filter.refill", "filters.refill"),
    ("filter.refill.max_gen_batches", "filters.refill[dynamic].max_batches"),
    ("filter.refill.neighbours", "filters.refill[neighbours].n"),
    ("filter.upweight", "filters.upweight"),
    ("len.truncated", "length.truncated"),
    ("len.penalty", "length.penalty"),
    ("update.rule", "updates.rule"),
    ("update.trust.delta", "updates.trust.delta"),
    ("update.trust.damping", "updates.trust.damping"),
    ("update.trust.cg_iters", "updates.trust.cg_iters"),
    ("update.trust.backtracks", "updates.trust.backtracks"),
    ("update.trust.backtrack_factor", "updates.trust.backtrack_factor"),
    ("update.epochs", "updates.epochs"),
    ("update.minibatches", "updates.minibatches"),
    ("update.resample_each_epoch", "updates.resample_each_epoch"),
    ("prompts.order", "sampling.order"),
    ("reward.terms", "rewards"),
)
"""(short name, path in RunConfig); `field[member]` picks one member of a union."""


def main() -> None:
    """Write the tables into docs/."""
    for page, text in with_tables(pages()).items():
        page.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """The text of every page that has a table."""
    texts = {page: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
    return {page: text for page, text in texts.items() if PLACE.search(text)}


def with_tables(texts: Mapping[Path, str]) -> dict[Path, str]:
    """The pages with every table up to date."""
    written = tables()
    places = [place[2] for text in texts.values() for place in PLACE.finditer(text)]
    for name in written:
        if places.count(name) != 1:
            raise SystemExit(
                f"docs/ has {places.count(name)} places for the table {name}: "
                f"write <!-- {name} --> and <!-- /{name} --> into one page"
            )
    return {page: PLACE.sub(lambda place: _filled(place, written), text) for page, text in texts.items()}


def _filled(place: re.Match[str], written: Mapping[str, str]) -> str:
    before, name, after = place.groups()
    if name not in written:
        raise SystemExit(f"nothing writes the table {name}, which docs/ has a place for")
    return f"{before}{written[name]}\n{after}"


def tables() -> dict[str, str]:
    """Every generated table by its name."""
    written = {
        "presets": presets(),
        "knobs": knobs(),
        "metrics": metrics(),
        "aliases": aliases(),
        "gauges": gauges(),
        "settings": settings(),
    }
    return written | measured() | survived()


def measured() -> dict[str, str]:
    """What the benchmarks wrote down when they were last run: `benchmarks/NAME/results.md`."""
    files = sorted((ROOT / "benchmarks").glob("*/results.md"))
    return {f"benchmark {file.parent.name}": _from_docs(file.read_text(encoding="utf-8")) for file in files}


def _from_docs(text: str) -> str:
    """The same text where links begin in docs/ and not in the project's root."""
    return text.strip().replace("](benchmarks/", "](../benchmarks/")


def survived() -> dict[str, str]:
    """What the rounds in the ledger of faults add up to: written by `make faults`."""
    return {"faults": (ROOT / "tests/faults/results.md").read_text(encoding="utf-8").strip()}


def presets() -> str:
    """One line per preset: what it changes against the defaults, and whose it is."""
    rows = (
        [f"`{name}`", preset.title, _changes(preset.changes), preset.source]
        for name, preset in PRESETS.items()
    )
    return _table(["preset", "name", "what it sets", "source"], rows)


def metrics() -> str:
    """One line per metric of the catalog."""
    rows = (
        [f"`{metric.name}`", metric.unit, _band(metric), metric.better, metric.meaning]
        for metric in (*METRICS.values(), *FAMILIES)
    )
    return _table(["metric", "unit", "healthy", "better", "meaning"], rows)


def aliases() -> str:
    """One line per metric that other trainers log too: their names of it."""
    rows = (
        [f"`{metric.name}`", ", ".join(f"`{name}`" for name in metric.aliases)]
        for metric in (*METRICS.values(), *FAMILIES)
        if metric.aliases
    )
    return _table(["metric", "names in other trainers"], rows)


def settings() -> str:
    """One line per environment variable."""
    rows = (
        [f"`{name.upper()}`", _value(field.default), _one_line(field.description or "")]
        for name, field in Settings.model_fields.items()
    )
    return _table(["variable", "default", "meaning"], rows)


def gauges() -> str:
    """One line per value of /metrics."""
    rows = [[f"`{name}`", ", ".join(gauge.labels), gauge.meaning] for name, gauge in GAUGES.items()]
    times = [
        "`grpolab_http_request_duration_seconds`",
        "method, route, status",
        "Histogram: time to the first byte.",
    ]
    process = ["`process_*`", "", "Processor time, memory and open files of the service."]
    return _table(["name", "labels", "meaning"], [*rows, times, process])


def knobs() -> str:
    """One line per knob: its short name in the literature's words, its place in RunConfig, its values."""
    rows = ([f"`{short}`", f"`{path}`", _values(field_at(path))] for short, path in KNOBS)
    return _table(["knob", "where in a run's config", "values, default first"], rows)


def field_at(path: str) -> FieldInfo:
    """The field of RunConfig at a dotted path; `field[member]` picks one member of a union."""
    *parents, last = path.split(".")
    model: type[BaseModel] = RunConfig
    for segment in parents:
        name, _, member = segment.rstrip("]").partition("[")
        model = _members(model.model_fields[name].annotation)[member]
    name, _, member = last.rstrip("]").partition("[")
    return model.model_fields[name]


def _members(annotation: Any) -> dict[str, type[BaseModel]]:
    """The models an annotation allows, by their `type`; a plain model under the empty name."""
    if get_origin(annotation) is typing.Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in {Union, types.UnionType}:
        return {name: model for part in get_args(annotation) for name, model in _members(part).items()}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        kind = annotation.model_fields.get("type")
        return {str(kind.default) if kind else "": annotation}
    return {}


def _values(field: FieldInfo) -> str:
    members = _members(field.annotation)
    default = field.default
    if members and not isinstance(default, BaseModel):  # a number, or a model in its place
        return ", ".join([_value(default), *(f"`{name}`" for name in members)])
    if "" not in members and members:
        return ", ".join(f"`{name}`" for name in _first(getattr(default, "type", ""), members))
    if get_origin(field.annotation) is Literal:
        return ", ".join(_value(choice) for choice in _first(default, get_args(field.annotation)))
    if isinstance(default, tuple):
        return "list, default " + ", ".join(f"`{getattr(part, 'name', part)}`" for part in default)
    return _value(default)


def _first(default: Any, choices: Iterable[Any]) -> list[Any]:
    return sorted(choices, key=lambda choice: choice != default)


def _changes(changes: Mapping[str, Any]) -> str:
    """`{"objective": {"aggregation": {"type": "token_mean"}}}` as `aggregation token_mean`."""
    flat = [part for key, value in changes.items() for part in _flat(key, value)]
    return "; ".join(flat).replace("objective.", "")


def _flat(path: str, value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path} {_plain(value)}"]
    rest = [part for key, inner in value.items() if key != "type" for part in _flat(key, inner)]
    if "type" in value:
        return [f"{path} {value['type']}" + (f" ({', '.join(rest)})" if rest else "")]
    return [part for key, inner in value.items() for part in _flat(f"{path}.{key}", inner)]


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_listed(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _listed(value: Any) -> str:
    """A reward term as `correctness x 1`, anything else as it is."""
    if isinstance(value, Mapping) and "name" in value:
        return f"{value['name']} x {value.get('weight', 1):g}"
    return str(value)


def _band(metric: Metric) -> str:
    low = "" if metric.low is None else f"{metric.low:g}"
    high = "" if metric.high is None else f"{metric.high:g}"
    return f"{low} .. {high}" if low or high else ""


def _value(value: Any) -> str:
    shown = "" if value in ("", ()) else str(value)
    return f"`{shown}`" if shown else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(_one_line(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


if __name__ == "__main__":
    main()
