"""Config of the problem sources, which provide the prompts."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from math import comb
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, model_validator

from backend.config.base import MAX_NAME_CHARACTERS, Frozen, combination_error
from backend.config.columns import AnswerForm
from backend.config.reasoning_gym_checks import parameter_errors
from backend.config.reasoning_gym_tasks import TASKS

Weight = Annotated[float, Field(ge=1e-6, le=1e6)]
DOMAIN_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,31}$"
"""Pattern of a domain, which becomes part of a metric's name."""

Domain = Annotated[str, Field(pattern=DOMAIN_PATTERN)]
Revision = Annotated[str, Field(pattern=r"^([0-9a-f]{40})?$")]
Sha256 = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
UPLOAD_HASH_PATTERN = re.compile(r"^uploads/(?=[0-9a-f]{12})|(?<=^uploads/[0-9a-f]{12})[0-9a-f]{52}\.jsonl$")
"""Pattern that removes all but the first digits of the hash from an upload's path."""

HUB_NAME_PATTERN = r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$"
BOX_INSTRUCTION = "Put the final answer inside \\boxed{}."
MIN_SUMS = 200


class SumsProblem(Frozen):
    """Sums of a few integers, such as `85+60+88=?`. They are built in and easy to check."""

    name: Literal["sums"] = "sums"

    weight: Weight = 1.0
    """Weight in the mixture of prompts, relative to the other sources."""

    domain: Domain = "math"
    """Domain of the prompts. Reward terms may be limited to one domain."""

    operands: Annotated[int, Field(ge=2, le=8)] = 3
    """Number of operands in each sum."""

    low: Annotated[int, Field(ge=0, le=999_998)] = 10
    """Smallest operand."""

    high: Annotated[int, Field(ge=1, le=999_999)] = 99
    """Largest operand."""

    @property
    def label(self) -> str:
        """Name of this source in prompts."""
        return self.name

    @model_validator(mode="after")
    def _wide_enough(self) -> "SumsProblem":
        if self.low >= self.high:
            raise combination_error([("high", f"must be above low = {self.low}, got {self.high}")])
        if (sums := comb(self.high - self.low + self.operands, self.operands)) < MIN_SUMS:
            reason = f"leaves only {sums} different sums, expected at least {MIN_SUMS} (some are held out)"
            raise combination_error([("high", reason)])
        return self


class ReasoningGymProblem(Frozen):
    """A task of the reasoning_gym library, which also grades the answers."""

    name: Literal["reasoning_gym"] = "reasoning_gym"

    weight: Weight = 1.0
    """Weight in the mixture of prompts, relative to the other sources."""

    domain: Domain = "reasoning"
    """Domain of the prompts. Reward terms may be limited to one domain."""

    task: Annotated[str, Field(json_schema_extra={"enum": sorted(TASKS)})]
    """Name of the task, e.g. chain_sum."""

    task_config: dict[str, JsonValue] = Field(default_factory=dict, max_length=64)
    """Parameters of the task, e.g. {"min_terms": 2}. Others have the defaults of the library."""

    instruction: Annotated[str, Field(max_length=10_000)] = BOX_INSTRUCTION
    """Text that is added to every question on a separate line."""

    @property
    def label(self) -> str:
        """Name of this source in prompts."""
        return f"{self.name}:{self.task}"

    @model_validator(mode="after")
    def _check_task(self) -> "ReasoningGymProblem":
        if self.task not in TASKS:
            raise combination_error(
                [("task", f"there is no task {self.task!r}{_find_nearest_name(self.task, TASKS)}")]
            )
        if errors := parameter_errors(self.task, TASKS[self.task], self.task_config):
            raise combination_error([(f"task_config.{key}", reason) for key, reason in errors])
        return self


class FileProblem(Frozen):
    """An upload or a JSONL file in DATASETS_DIR, whose rows have a prompt, an answer and other columns."""

    name: Literal["file"] = "file"

    weight: Weight = 1.0
    """Weight in the mixture of prompts, relative to the other sources."""

    domain: Domain = "data"
    """Domain of rows without a domain. Reward terms may be limited to one domain."""

    path: Annotated[str, Field(min_length=1, max_length=255, json_schema_extra={"format": "dataset"})]
    """Path of the file, relative to DATASETS_DIR. Uploads are in `uploads/`."""

    prompt_field: Annotated[str, Field(min_length=1, max_length=128)] = "prompt"
    """Field that contains the question."""

    answer_field: Annotated[str, Field(min_length=1, max_length=128)] = "answer"
    """Field that contains the answer. It is the prompt field if conversations end with the answer."""

    answer_after: Annotated[str, Field(max_length=32)] = ""
    """Mark after whose last occurrence the answer follows, e.g. #### . If
    empty, the answer is the whole text.
    """

    answer_form: AnswerForm = "text"
    """With boxed, the answer is the last box of a solution, as in MATH."""

    instruction: Annotated[str, Field(max_length=10_000)] = ""
    """Text that is added to every question on a separate line."""

    eval_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    """Fraction of the rows without a `split` field that is held out, selected by a hash of the question."""

    sha256: Sha256 = ""
    """Hash of the content, set at launch. If the file has changed since then, the run is refused."""

    @property
    def label(self) -> str:
        """Name of this source in prompts."""
        return f"{self.name}:{UPLOAD_HASH_PATTERN.sub('upload ', self.path)}"


class HubProblem(Frozen):
    """A dataset of the Hugging Face hub, read from its Parquet files. Its code is never run."""

    name: Literal["hub"] = "hub"

    weight: Weight = 1.0
    """Weight in the mixture of prompts, relative to the other sources."""

    domain: Domain = "data"
    """Domain of the prompts. Reward terms may be limited to one domain."""

    dataset: Annotated[str, Field(pattern=HUB_NAME_PATTERN, max_length=MAX_NAME_CHARACTERS)]
    """Name on the hub, e.g. openai/gsm8k. This requires HF_ONLINE."""

    subset: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=96)] = "default"
    """Configuration of the dataset, e.g. main."""

    split: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=96)] = "train"
    """Split whose rows are trained on."""

    eval_split: Annotated[str, Field(pattern=r"^[\w.-]*$", max_length=96)] = ""
    """Split whose rows are held out. If empty, a fraction of `split` is held out."""

    eval_dataset: Annotated[str, Field(pattern=HUB_NAME_PATTERN + r"|^$", max_length=MAX_NAME_CHARACTERS)] = (
        ""
    )
    """Another dataset with the same columns whose `eval_split` is held out, e.g. HuggingFaceH4/MATH-500."""

    revision: Revision = ""
    """Commit of the dataset, 40 hexadecimal digits. If empty, the newest commit is set at launch."""

    eval_revision: Revision = ""
    """Commit of `eval_dataset`. If empty, the newest commit is set at launch."""

    prompt_field: Annotated[str, Field(min_length=1, max_length=128)] = "question"
    """Column that contains the question."""

    answer_field: Annotated[str, Field(min_length=1, max_length=128)] = "answer"
    """Column that contains the answer. It is the prompt column if conversations end with the answer."""

    answer_after: Annotated[str, Field(max_length=32)] = ""
    """Mark after whose last occurrence the answer follows, e.g. #### . If
    empty, the answer is the whole text.
    """

    answer_form: AnswerForm = "text"
    """With boxed, the answer is the last box of a solution, as in MATH."""

    instruction: Annotated[str, Field(max_length=10_000)] = BOX_INSTRUCTION
    """Text that is added to every question on a separate line."""

    eval_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    """Fraction of `split` that is held out if there is no `eval_split`,
    selected by a hash of the question.
    """

    @property
    def label(self) -> str:
        """Name of this source in prompts."""
        return f"{self.name}:{self.dataset}"

    @model_validator(mode="after")
    def _refuse_dots(self) -> "HubProblem":
        for field in ("dataset", "eval_dataset"):
            if ".." in (name := getattr(self, field)):
                raise combination_error([(field, f"expected a name on the hub, got {name!r}")])
        if self.eval_dataset and not self.eval_split:
            raise combination_error(
                [("eval_split", f"expected the split of {self.eval_dataset} that is held out")]
            )
        if self.eval_split == self.split and self.eval_dataset in ("", self.dataset):
            raise combination_error([("eval_split", f"must differ from split = {self.split!r}")])
        return self


class EpisodesProblem(Frozen):
    """Episodes of the run's environment. Each prompt is the same instruction followed by the first
    observation of the environment, which creates each task from a seed.
    """

    name: Literal["episodes"] = "episodes"

    weight: Weight = 1.0
    """Weight in the mixture of prompts, relative to the other sources."""

    domain: Domain = "environment"
    """Domain of the prompts. Reward terms may be limited to one domain."""

    instruction: Annotated[str, Field(min_length=1, max_length=10_000)]
    """Instruction for the policy before the first observation."""

    @property
    def label(self) -> str:
        """Name of this source in prompts."""
        return self.name


class PluginProblem(Frozen):
    """A custom problem source, installed next to the worker as an entry
    point of the group `grpolab.problems`.
    """

    name: Literal["plugin"] = "plugin"

    weight: Weight = 1.0
    """Weight in the mixture of prompts, relative to the other sources."""

    domain: Domain = "custom"
    """Domain of prompts without a domain. Reward terms may be limited to one domain."""

    entry_point: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=96)]
    """Name of the entry point, which is called as `factory(seed=..., **params)` and returns a problem."""

    params: dict[str, JsonValue] = Field(default_factory=dict, max_length=64)
    """Keyword arguments of the factory."""

    @property
    def label(self) -> str:
        """Name of this source in prompts."""
        return self.entry_point


ProblemSource = Annotated[
    SumsProblem | ReasoningGymProblem | FileProblem | HubProblem | EpisodesProblem | PluginProblem,
    Field(discriminator="name"),
]

PROBLEM_TITLES: dict[type[Frozen], str] = {
    SumsProblem: "Sums (built in)",
    ReasoningGymProblem: "reasoning_gym task",
    FileProblem: "File (JSONL, Parquet, CSV)",
    HubProblem: "Hugging Face dataset",
    EpisodesProblem: "Episodes of the environment",
    PluginProblem: "Plugin",
}


def problem_catalog() -> list[dict[str, Any]]:
    """Return all kinds of problem sources for the form, with the JSON Schemas of their parameters."""
    return [
        {
            "name": source.model_fields["name"].default,
            "title": title,
            "note": (source.__doc__ or "").strip(),
            "params": source.model_json_schema(),
        }
        for source, title in PROBLEM_TITLES.items()
    ]


def _find_nearest_name(name: str, names: Iterable[str]) -> str:
    similar_names = get_close_matches(name, names, n=3)
    return (
        f"; did you mean {', '.join(similar_names)}" if similar_names else "; GET /api/v1/problems lists them"
    )
