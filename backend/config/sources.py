"""Check the files, names and plugins of problems and rewards before a run is queued.

These checks depend on the machine and are therefore not part of the schema.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from backend.base.errors import FieldError, InvalidConfig
from backend.config.columns import Columns
from backend.config.data import DataConfig
from backend.config.hub import HubError, newest_commit
from backend.config.jsonl import BadDataset, JsonlIndex, held_out_keys, index_dataset, resolve_dataset
from backend.config.pass_rates import read_rates
from backend.config.plugins import PROBLEMS_GROUP, REWARDS_GROUP, find_plugin
from backend.config.problems import FileProblem, HubProblem, PluginProblem, ProblemSource
from backend.config.rewards import PluginReward, RewardTerm
from backend.config.rows import LineError

if TYPE_CHECKING:
    from backend.config.run import RunConfig


def source_errors(
    config: "RunConfig", *, datasets_dir: Path, hf_online: bool, unserved_reasons: Mapping[str, str]
) -> list[FieldError]:
    """Return an error for each field of problems, suites and rewards that this machine does not support.

    `unserved_reasons` maps the reward terms whose server is not configured to the name of the missing
    setting.
    """
    return [
        *_rates_errors(config.data, datasets_dir),
        *_problem_errors(config.sources, datasets_dir=datasets_dir, hf_online=hf_online),
        *_reward_errors(config.rewards, unserved_reasons),
    ]


def _rates_errors(data: DataConfig, datasets_dir: Path) -> list[FieldError]:
    try:
        if data.pass_rates:
            read_rates(datasets_dir, data.pass_rates)
    except ValueError as error:
        return [FieldError("data.pass_rates", str(error))]
    return []


def pin_sources(config: "RunConfig", *, datasets_dir: Path) -> "RunConfig":
    """Return the config with the hash of each file and the commit of each hub dataset.

    They ensure that all attempts use the same rows. Raises InvalidConfig if the hub returns no commit.
    """
    sources_by_path = {
        path: _pin_source(source, datasets_dir, path).model_dump() for path, source in config.sources
    }
    problems = [sources_by_path[f"problems.{number}"] for number in range(len(config.problems))]
    suites = [
        suite.model_dump() | {"problem": sources_by_path[f"evaluation.suites.{number}.problem"]}
        for number, suite in enumerate(config.evaluation.suites)
    ]
    evaluation = config.evaluation.model_dump() | {"suites": suites}
    return config.with_(problems=problems, evaluation=evaluation)


def _pin_source(source: ProblemSource, datasets_dir: Path, path: str) -> ProblemSource:
    if isinstance(source, FileProblem) and not source.sha256:
        return source.with_(sha256=checked_file(source, datasets_dir, trains=_trains(path)).sha256)
    if not isinstance(source, HubProblem):
        return source
    commits = {}
    for name, revision in (("dataset", "revision"), ("eval_dataset", "eval_revision")):
        if (dataset := getattr(source, name)) and not getattr(source, revision):
            try:
                commits[revision] = newest_commit(dataset)
            except HubError as error:
                raise InvalidConfig([FieldError(f"{path}.{name}", str(error))]) from error
    return source.with_(**commits) if commits else source


def checked_file(source: FileProblem, datasets_dir: Path, *, trains: bool = True) -> JsonlIndex:
    """Return the index of the file of a problem.

    Raises ValueError with the reason if its path, rows or hash are invalid. A file that is only used for
    evaluation (`trains` is False) may have no training rows.
    """
    path = resolve_dataset(datasets_dir, source.path)
    status = path.stat()
    columns = Columns(source.prompt_field, source.answer_field)
    file_version = (status.st_size, status.st_mtime_ns, status.st_ino)
    with _index_lock:
        index = _cached_index(path, columns, file_version)
        is_empty = trains and not _has_training_rows(path, columns, file_version, source.eval_fraction)
    if source.sha256 and index.sha256 != source.sha256:
        raise ValueError(
            f"{source.path} has changed since launch: expected SHA-256 {source.sha256}, got {index.sha256}"
        )
    if is_empty:
        raise BadDataset(
            path.name, [LineError(0, "has no row left for training: all questions are held out")]
        )
    return index


def offline_reason(dataset: str) -> str:
    """Return the reason why a hub dataset cannot be downloaded while HF_ONLINE is off."""
    return f"{dataset!r} is on the Hugging Face hub and HF_ONLINE is off: set HF_ONLINE=1, or use a file"


def _problem_errors(
    sources: Sequence[tuple[str, ProblemSource]], *, datasets_dir: Path, hf_online: bool
) -> Iterator[FieldError]:
    for path, source in sources:
        if isinstance(source, FileProblem):
            yield from _file_errors(source, datasets_dir, path)
        elif isinstance(source, HubProblem) and not hf_online:
            yield FieldError(f"{path}.dataset", offline_reason(source.dataset))
        elif isinstance(source, PluginProblem):
            yield from _plugin_errors(PROBLEMS_GROUP, source.entry_point, f"{path}.entry_point")


def _trains(path: str) -> bool:
    """Return whether the source at a path of the config is used for training and not for a suite."""
    return path.startswith("problems.")


def _reward_errors(
    rewards: Sequence[RewardTerm], unserved_reasons: Mapping[str, str]
) -> Iterator[FieldError]:
    for number, term in enumerate(rewards):
        if setting := unserved_reasons.get(term.name):
            message = (
                f"the reward {term.name} needs a server that is not configured: "
                f"the operator must set {setting}"
            )
            yield FieldError(f"rewards.{number}.name", message)
        if isinstance(term, PluginReward):
            yield from _plugin_errors(REWARDS_GROUP, term.entry_point, f"rewards.{number}.entry_point")


def _file_errors(source: FileProblem, datasets_dir: Path, path: str) -> Iterator[FieldError]:
    field = f"{path}.path"
    try:
        checked_file(source, datasets_dir, trains=_trains(path))
    except BadDataset as error:
        yield from (FieldError(field, f"{error.name}: {line}") for line in error.errors)
    except (ValueError, OSError) as error:
        yield FieldError(field, str(error))


def _plugin_errors(group: str, name: str, path: str) -> Iterator[FieldError]:
    try:
        find_plugin(group, name)
    except ValueError as error:
        yield FieldError(path, str(error))


@lru_cache(maxsize=8)
def _cached_index(path: Path, columns: Columns, _stamp: tuple[int, int, int]) -> JsonlIndex:
    """Index a file once until it changes, because the form validates at every key press."""
    return index_dataset(path, columns)


@lru_cache(maxsize=64)
def _has_training_rows(
    path: Path, columns: Columns, file_version: tuple[int, int, int], fraction: float
) -> bool:
    index = _cached_index(path, columns, file_version)
    held_out = held_out_keys(index.keys, index.splits, fraction)
    return any(key not in held_out for key in index.keys)


_index_lock = Lock()
"""Lock that makes concurrent requests share one indexing of a file, which can take seconds."""
