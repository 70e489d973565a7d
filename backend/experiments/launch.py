"""Launch an experiment by queueing the runs of its variants and seeds, all of them or none."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from backend.base.errors import FieldError, InvalidConfig
from backend.base.settings import Settings
from backend.config.problems import FileProblem, HubProblem
from backend.config.run import RunConfig
from backend.experiments.comparable import scale_differences
from backend.experiments.schemas import ExperimentRequest
from backend.experiments.sweep import MAX_RUNS, Cell, draw_cells, expand
from backend.http.dependencies import Lab
from backend.http.idempotency import find_previous, request_digest
from backend.runs.checks import resolve_runnable
from backend.runs.cost import newest_price
from backend.runs.events import add_event
from backend.runs.launch_checks import refuse_failed, refuse_programs
from backend.runs.naming import new_run_names
from backend.runs.rows import run_row
from backend.storage.engine import insert_into, new_id, open_read_session
from backend.storage.models import Experiment, Run, Search, SearchTrial

MAX_STEPS_TOGETHER = 100_000_000
MAX_NAMED = 3
"""Maximum number of cells that an error message names."""


class PlannedRun(NamedTuple):
    """A run that is about to be queued."""

    variant: str
    seed: int
    config: RunConfig
    parent_run: str | None = None
    fork_step: int | None = None
    """Step of the parent's checkpoint from which the run continues; None if it starts from the beginning."""
    reason: str = "queued"
    """Message of the first event of the run."""


def launch(lab: Lab, request: ExperimentRequest, *, key: str) -> dict[str, Any]:
    """Queue an experiment and return a `schemas.LaunchedExperiment`.

    The call is idempotent: the same key and body return the first response again. Configs are resolved and
    files hashed before the transaction, because it blocks all other writers on SQLite.
    """
    document = request.model_dump(mode="json", exclude=set() if request.sweep else {"sweep"})
    digest = request_digest(document)
    with open_read_session(lab.sessions) as session:
        if earlier_id := find_previous(session, key, digest):
            return launch_answer(session, earlier_id)
        errors = budget_errors(session, request) if is_search(request) else []
    if errors:
        raise InvalidConfig(errors)
    cells = make_cells(request)
    if is_search(request):
        cells = [first_runnable(lab.settings, request, cells)]
        planned_runs = list(
            plan_runs(lab.settings, request.model_copy(update={"seeds": request.seeds[:1]}), cells)
        )
        stored_request = _pin_data(document, planned_runs[0].config)
    else:
        planned_runs = list(plan_runs(lab.settings, request, cells))
        stored_request = {**document, "variants": [cell.variant for cell in cells]}
        stored_request.pop("sweep", None)  # the variants contain the whole sweep and can be submitted again
    row = {"id": new_id(), "name": request.name, "request": stored_request, "request_hash": digest}
    run_fields = {"priority": request.priority, "tags": request.tags, "notes": request.notes}
    with lab.sessions.begin() as session:
        refuse_programs(session, [run.config for run in planned_runs])
        if not request.ignore_check:
            refuse_failed(session, [run.config for run in planned_runs])
        experiment_id = enter_experiment(
            session, row | {"idempotency_key": key or None}, planned_runs, run_fields
        )
        if experiment_id and is_search(request):
            _begin_search(session, experiment_id, cells[0])
        # None means that a concurrent request with the same key was first.
        return launch_answer(session, experiment_id or find_previous(session, key, digest) or "")


def enter_experiment(
    session: Session,
    row: Mapping[str, Any],
    planned_runs: Sequence[PlannedRun],
    run_fields: Mapping[str, Any],
) -> str | None:
    """Add an experiment and its runs, all with the fields in `run_fields`, and return the id of the
    experiment.

    Return None if an experiment with this idempotency key exists.
    """
    statement = insert_into(session, Experiment).values(**row)
    experiment_id: str | None = session.scalar(statement.on_conflict_do_nothing().returning(Experiment.id))
    if experiment_id is not None:
        queue_runs(session, experiment_id, planned_runs, run_fields)
    return experiment_id


def is_search(request: ExperimentRequest) -> bool:
    """Return whether the request is a search, whose cells are chosen one after the other."""
    return request.sweep is not None and request.sweep.method == "search"


def first_runnable(settings: Settings, request: ExperimentRequest, cells: Sequence[Cell]) -> Cell:
    """Return the first runnable cell of a search; raise InvalidConfig with all errors if there is none."""
    configs = list(resolve_configs(settings, request, cells))
    if errors := objective_errors(request, [config for config in configs if isinstance(config, RunConfig)]):
        raise InvalidConfig(errors)
    runnable_cells = [
        cell for cell, config in zip(cells, configs, strict=True) if isinstance(config, RunConfig)
    ]
    if not runnable_cells:
        raise InvalidConfig(_collect_errors(cells, configs, is_swept=True))
    return runnable_cells[0]


def objective_errors(request: ExperimentRequest, configs: Sequence[RunConfig]) -> list[FieldError]:
    """Return errors if the objective of a search cannot be measured or differs in scale between these
    configs.
    """
    metric = request.sweep.search.metric if request.sweep else ""
    suites = [suite.name for config in configs[:1] for suite in config.evaluation.suites]
    is_of_suite = any(metric.startswith(f"eval/{name}/") for name in suites)
    if configs and metric.startswith("eval/") and not is_of_suite and not configs[0].evaluation.every:
        reason = f"{metric} is measured by evaluations, and these runs have none: set evaluation.every"
        return [FieldError("sweep.search.metric", reason)]
    documents = [config.model_dump(mode="json") for config in configs]
    for document in documents[1:]:
        if paths := scale_differences(metric, documents[0], document):
            reason = f"{metric} changes its scale with {paths[0]}: choose another objective"
            return [FieldError("sweep.search.metric", reason)]
    return []


def budget_errors(session: Session, request: ExperimentRequest) -> list[FieldError]:
    """Return errors if the budget of a search cannot be enforced."""
    if request.sweep is None or request.sweep.search.money is None or newest_price(session) is not None:
        return []
    reason = "no worker slot has had a price yet: set SLOT_PRICE, or give the budget in hours"
    return [FieldError("sweep.search.money", reason)]


def _pin_data(document: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    """Return the request of a search with the hashes or commits of its data, so that all runs read the same
    rows.

    Data that a knob selects are pinned for each run.
    """
    swept_paths = [knob["path"] for knob in document["sweep"]["knobs"]]
    file_types = (FileProblem, HubProblem)
    pinned_sections = {
        path.partition(".")[0] for path, source in config.sources if isinstance(source, file_types)
    }
    base, variant = dict(document["base"]), dict(document["variants"][0])
    if "problems" in pinned_sections and not any(path.startswith("problems") for path in swept_paths):
        section = variant if "problems" in variant else base
        section["problems"] = [problem.model_dump(mode="json") for problem in config.problems]
    if "evaluation" in pinned_sections and not any(
        path == "evaluation" or path.startswith("evaluation.suites") for path in swept_paths
    ):
        section = variant if "suites" in variant.get("evaluation", {}) else base
        suites = [suite.model_dump(mode="json") for suite in config.evaluation.suites]
        section["evaluation"] = {**section.get("evaluation", {}), "suites": suites}
    return {**document, "base": base, "variants": [variant]}


def _begin_search(session: Session, experiment_id: str, cell: Cell) -> None:
    """Add the rows of a search whose first run is queued."""
    run_id = session.scalar(select(Run.id).where(Run.experiment_id == experiment_id))
    session.add(Search(experiment_id=experiment_id))
    session.flush()
    session.add(
        SearchTrial(
            experiment_id=experiment_id,
            number=0,
            point=list(cell.values),
            variant=cell.variant["name"],
            run_id=run_id,
        )
    )
    session.flush()


def make_cells(request: ExperimentRequest) -> list[Cell]:
    """Return the variants of a request, multiplied by its sweep, or the candidates for the first cell of a
    search.

    Raise InvalidConfig if there are too many runs.
    """
    seeds = len(request.seeds)
    if request.sweep is not None and request.sweep.method == "search":
        return draw_cells(request.base, request.variants, request.sweep, seeds=seeds)
    if request.sweep is not None:
        return expand(request.base, request.variants, request.sweep, seeds=seeds)
    if (count := len(request.variants) * seeds) > MAX_RUNS:
        reason = f"{count} runs are more than the {MAX_RUNS} that one experiment may have"
        raise InvalidConfig([FieldError("seeds", reason)])
    return [Cell(variant, variant["name"], ()) for variant in request.variants]


def resolve_configs(
    settings: Settings, request: ExperimentRequest, cells: Sequence[Cell]
) -> Iterator[RunConfig | InvalidConfig]:
    """Yield the complete config of each cell, or its errors."""
    for cell in cells:
        try:
            yield resolve_runnable(settings, request.base, cell.variant, request.seeds[0])
        except InvalidConfig as error:
            yield error


def plan_runs(settings: Settings, request: ExperimentRequest, cells: Sequence[Cell]) -> Iterator[PlannedRun]:
    """Yield all runs of the request; raise InvalidConfig with the errors of all cells if any is invalid."""
    checked_configs = list(resolve_configs(settings, request, cells))
    if errors := _collect_errors(cells, checked_configs, is_swept=request.sweep is not None):
        raise InvalidConfig(errors)
    configs = [config for config in checked_configs if isinstance(config, RunConfig)]
    if (steps := sum(config.steps for config in configs) * len(request.seeds)) > MAX_STEPS_TOGETHER:
        reason = f"make {steps:,} steps in total; an experiment may make at most {MAX_STEPS_TOGETHER:,}"
        raise InvalidConfig(
            [FieldError("seeds", f"{len(request.seeds)} seeds of {len(configs)} variants {reason}")]
        )
    # The first seeds of all variants come first, so that they can be compared early.
    for seed in request.seeds:
        for cell, config in zip(cells, configs, strict=True):
            yield PlannedRun(cell.variant["name"], seed, config.with_(seed=seed))


def _collect_errors(
    cells: Sequence[Cell], configs: Sequence[RunConfig | InvalidConfig], *, is_swept: bool
) -> list[FieldError]:
    """Return errors by variant; an error in a sweep is listed once, with the first cells that have it."""
    cell_errors = [
        (number, cell, error)
        for number, (cell, config) in enumerate(zip(cells, configs, strict=True))
        if isinstance(config, InvalidConfig)
        for error in config.errors
    ]
    if not is_swept:
        return [
            FieldError(f"variants.{number}.{error.path}", error.message) for number, _, error in cell_errors
        ]
    names: dict[tuple[str, str], list[str]] = {}
    for _, cell, error in cell_errors:
        names.setdefault((error.path, error.message), []).append(cell.variant["name"])
    return [
        FieldError(f"sweep.{path}", f"{message} (in {_join_names(variant_names)})")
        for (path, message), variant_names in names.items()
    ]


def _join_names(names: Sequence[str]) -> str:
    unnamed_count = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {unnamed_count} more" if unnamed_count > 0 else "")


def queue_runs(
    session: Session, experiment_id: str, planned_runs: Sequence[PlannedRun], run_fields: Mapping[str, Any]
) -> list[str]:
    """Add runs to an experiment, all with the fields in `run_fields`, and return their ids in order."""
    names = new_run_names(session, len(planned_runs))
    ids = sorted(new_id() for _ in planned_runs)
    rows = [
        {
            **run_row(name, run.variant, run.config),
            "id": run_id,
            "experiment_id": experiment_id,
            "parent_run": run.parent_run,
            "fork_step": run.fork_step,
            **run_fields,
        }
        for run_id, name, run in zip(ids, names, planned_runs, strict=True)
    ]
    session.execute(insert(Run), rows)
    for row, run in zip(rows, planned_runs, strict=True):
        add_event(session, "lifecycle", run.reason, run_id=row["id"], data={"to": "queued"})
    return ids


def launch_answer(session: Session, experiment_id: str) -> dict[str, Any]:
    """Return the response to a launch, with ids in launch order, regardless of their current state."""
    name = session.scalar(select(Experiment.name).where(Experiment.id == experiment_id))
    query = select(Run.id, Run.name, Run.variant, Run.seed).where(Run.experiment_id == experiment_id)
    runs = [
        {"id": row.id, "name": row.name, "variant": row.variant, "seed": row.seed, "status": "queued"}
        for row in session.execute(query.order_by(Run.id))
    ]
    return {"id": experiment_id, "name": name, "runs": runs}
