"""HTTP routes of catalogs for the form and the charts, such as schema, presets, metrics and policies."""

from functools import cache
from typing import Annotated, Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError

from backend.analysis.diagnosis.suspects import unusual_values
from backend.base.errors import RunNotFound
from backend.catalog.policies.offered import policy_offers
from backend.config.data_recipes import DATA_RECIPES
from backend.config.formula.loss import formula
from backend.config.merge import resolve
from backend.config.metrics import FAMILIES, METRICS
from backend.config.policies import LANGUAGE_MODEL
from backend.config.presets import FAMILIES as PRESET_FAMILIES
from backend.config.previews import previews, unpreviewable_labels
from backend.config.problems import problem_catalog
from backend.config.recipes import RECIPES
from backend.config.rules.combinations import warnings
from backend.config.run import RunConfig
from backend.experiments.engine_reach import engine_warnings
from backend.experiments.estimates import estimates
from backend.experiments.memory_estimate import memory_estimate, memory_warnings
from backend.experiments.schemas import Seed, Validated, ValidateRequest
from backend.http.auth.permissions import Role
from backend.http.dependencies import ReadSession, SettingsOf
from backend.http.responses import Json, Page
from backend.http.routing import Router
from backend.runs.checks import resolve_runnable
from backend.runs.children import refuse_as_fork
from backend.runs.launch_checks import refuse_programs
from backend.runs.origin import refuse_imported
from backend.runs.schemas import Body, Fields
from backend.storage.models import Run

router = Router(prefix="/api/v1", tags=["catalog"])

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Policy", ("policy",)),
    ("Problems", ("problems",)),
    ("Data", ("data",)),
    ("Sampling", ("sampling",)),
    ("Environment", ("environment",)),
    ("Advantage", ("objective.advantage", "objective.value")),
    ("Ratio and clip", ("objective.ratio", "objective.surrogate")),
    ("Aggregation", ("objective.aggregation", "objective.token_weight")),
    ("KL and entropy", ("objective.kl", "objective.reference", "objective.entropy", "objective.nll")),
    ("Off-policy", ("objective.correction", "objective.off_policy_mask", "objective.router")),
    ("Sampling filters", ("filters",)),
    ("Length", ("length",)),
    ("Rewards", ("rewards",)),
    ("Updates and optimizer", ("updates", "optimizer")),
    ("Budget", ("steps", "evaluation", "checkpointing", "recording", "stop_rules", "resources")),
)
"""Sections of the form and the fields of RunConfig that they contain."""

SECONDARY_FIELDS = ("policy.revision", "resources", "optimizer.betas", "optimizer.eps", "recording.tokens",
    "recording.alternatives",
)  # fmt: skip
"""Fields that a form may hide at first."""

SWITCHES = {
    "updates.trust": ("updates.rule", ("natural_gradient",)),
    "objective.value": ("objective.advantage.type", ("critic",)),
    "data.similarity": ("data.near_duplicates", ("report", "drop")),
    "data.ngram": ("data.contamination", ("report", "drop")),
    "data.difficulty_field": ("data.curriculum", ("easy_first",)),
}
"""Fields that have an effect only if another field has one of these values, so that a form can hide them."""


class PreviewRequest(Body):
    """A request to preview problem sources."""

    problems: Annotated[list[Fields], Field(min_length=1, max_length=32)]
    seed: Seed = 0


@router.get("/config-schema", response_model=dict[str, Any])
def config_schema(settings: SettingsOf) -> Json:
    """Return the JSON Schema of a run's config, its defaults, and the sections of the form.

    The names of the OpenEnv servers are those of this installation.
    """
    return Json(_config_schema(tuple(settings.openenv_servers)))


@cache
def _config_schema(servers: tuple[str, ...]) -> dict[str, Any]:
    schema = RunConfig.model_json_schema()
    if servers:
        schema["$defs"]["OpenEnv"]["properties"]["server"] |= {"enum": list(servers), "default": servers[0]}
    return {
        "schema": schema,
        "defaults": RunConfig().model_dump(mode="json"),
        "groups": [{"title": title, "fields": list(fields)} for title, fields in GROUPS],
        "secondary": list(SECONDARY_FIELDS),
        "switches": {
            path: {"path": switch, "values": list(values)} for path, (switch, values) in SWITCHES.items()
        },
    }


@router.get("/presets", response_model=Page)
def presets() -> Json:
    """List published methods; `config` contains the differences from the defaults."""
    return _item_list(_presets())


@cache
def _presets() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "title": preset.title,
            "family": family,
            "source": preset.source,
            "note": preset.note,
            "config": preset.changes,
            "formula": formula(resolve({"preset": name}))["text"],
        }
        for family, members in PRESET_FAMILIES.items()
        for name, preset in members.items()
    ]


@router.get("/recipes", response_model=Page)
def recipes() -> Json:
    """List complete configs of runs with known results."""
    return _item_list(
        {
            "name": name,
            "title": recipe.title,
            "note": recipe.note,
            "config": recipe.config.model_dump(mode="json"),
        }
        for name, recipe in RECIPES.items()
    )


@router.get("/data-recipes", response_model=Page)
def data_recipes() -> Json:
    """List public training datasets with their licenses; `config` contains the problems that read them."""
    return _item_list(
        {
            "name": name,
            "title": recipe.title,
            "family": recipe.family,
            "source": f"{recipe.source}, {recipe.licence}",
            "note": recipe.note,
            "config": {"problems": [source.model_dump(mode="json") for source in recipe.problems]},
        }
        for name, recipe in DATA_RECIPES.items()
    )


@router.get("/metric-catalog", response_model=Page)
def metric_catalog() -> Json:
    """List all metrics that a run can record; a name with `<...>` is a family of metrics."""
    return _item_list(
        {
            "name": metric.name,
            "section": metric.section,
            "unit": metric.unit,
            "meaning": metric.meaning,
            "scale": metric.scale,
            "band": [metric.low, metric.high] if (metric.low, metric.high) != (None, None) else None,
            "better": metric.better or None,
        }
        for metric in (*METRICS.values(), *FAMILIES)
    )


@router.get("/problems", response_model=Page)
def problems() -> Json:
    """List the kinds of problem sources with the JSON Schemas of their parameters."""
    return _item_list(problem_catalog())


@router.post("/problems/preview", response_model=dict[str, Any])
def preview_problems(body: PreviewRequest, settings: SettingsOf) -> Json:
    """Return three prompts with answers, if they can be generated without a worker."""
    config = resolve_runnable(settings, {"problems": body.problems}, None, body.seed)
    examples = previews(config.problems, seed=body.seed, datasets_dir=settings.datasets_dir)
    hidden_labels = unpreviewable_labels(config.problems)
    note = (
        f"prompts of {', '.join(hidden_labels)} can be read once a run has started" if hidden_labels else ""
    )
    return Json({"items": [example._asdict() for example in examples], "note": note})


@router.get("/policies", response_model=Page)
def policies(settings: SettingsOf) -> Json:
    """List the trainable models; the entry without a name stands for any other model."""
    return _item_list(offer.model_dump(mode="json") for offer in (*policy_offers(settings), LANGUAGE_MODEL))


@router.post("/validate", response_model=Validated)
def validate(body: dict[str, Any], request: Request, session: ReadSession, settings: SettingsOf) -> Json:
    """Return the complete config of a run or fork, its loss as a formula and its estimated cost; 422 if it is
    invalid.

    For operators, `warnings` also lists sampling servers that do not respond.
    """
    request_of_run = _parse_request(body)
    config = resolve_runnable(settings, request_of_run.base, request_of_run.variant, request_of_run.seed)
    refuse_programs(session, [config])
    if request_of_run.fork is not None:
        parent = session.get(Run, request_of_run.fork.run)
        if parent is None or parent.deleting_at is not None:
            raise RunNotFound(request_of_run.fork.run)
        refuse_imported(parent, "forked")
        refuse_as_fork(parent, request_of_run.fork.step, config)
    server_warnings = engine_warnings(config, settings) if request.state.role is Role.OPERATOR else []
    loss_formula, memory = formula(config), memory_estimate(session, config, settings)
    return Json(
        {
            "config": config.model_dump(mode="json"),
            "formula": loss_formula["text"],
            "formula_mathml": loss_formula["mathml"],
            "formula_notes": loss_formula["notes"],
            "formula_legend": loss_formula["legend"],
            "estimates": estimates(
                session, config, settings, after_step=request_of_run.fork.step if request_of_run.fork else 0
            ),
            "memory": memory.model_dump(mode="json"),
            "warnings": [
                *server_warnings,
                *unusual_values(config),
                *warnings(config),
                *memory_warnings(memory),
            ],
        }
    )


def _parse_request(body: dict[str, Any]) -> ValidateRequest:
    """Parse the body, which is a plain RunConfig unless it has a `base`, a `variant` or a `fork`."""
    is_plain = not body.keys() & {"base", "variant", "fork"}
    try:
        return ValidateRequest.model_validate(
            {"base": body, "seed": body.get("seed", 0)} if is_plain else body
        )
    except ValidationError as error:
        raise RequestValidationError([_config_error(item) for item in error.errors()]) from None


def _config_error(item: Any) -> dict[str, Any]:
    """Return an error of the request with a path in the format of config errors."""
    context = dict(item.get("ctx", {}))
    for prefix in ("base.", "variant."):
        if "path" in context:
            context["path"] = context["path"].removeprefix(prefix)
    return {**item, "loc": ("body", *item["loc"]), "ctx": context}


def _item_list(items: Any) -> Json:
    return Json({"items": list(items), "next": None})
