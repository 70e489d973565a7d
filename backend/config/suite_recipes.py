"""Common benchmarks of reasoning models as suites."""

from backend.config.base import Frozen
from backend.config.evaluation import Suite
from backend.config.problems import HubProblem


class SuiteRecipe(Frozen):
    """A benchmark with the suite that evaluates it."""

    title: str
    """Common name of the benchmark."""

    licence: str
    """Licence according to the dataset card. Read the card before you publish."""

    note: str
    """Description of the problems and of the sampling."""

    suite: Suite
    """Suite with its rows at a pinned commit and its usual sampling."""

    @property
    def source(self) -> str:
        """Name of the dataset on the hub and its commit."""
        problem = self.suite.problem
        assert isinstance(problem, HubProblem)  # noqa: S101 - for the type checker
        return f"{problem.dataset} at {problem.revision[:7]}"


def _recipe(
    title: str, licence: str, note: str, *, name: str, n: int, prompts: int, **rows: str
) -> SuiteRecipe:
    problem = HubProblem.model_validate({"domain": "math", **rows})
    suite = Suite(name=name, problem=problem, rows="all", prompts=prompts, n=n)
    return SuiteRecipe(title=title, licence=licence, note=note, suite=suite)


SUITE_RECIPES: dict[str, SuiteRecipe] = {
    "math500": _recipe(
        "MATH-500",
        "MIT (of MATH)",
        "500 problems of MATH's test split, chosen by OpenAI for Let's Verify Step by Step "
        "(arXiv:2305.20050). Four completions per problem.",
        name="math500",
        n=4,
        prompts=500,
        dataset="HuggingFaceH4/MATH-500",
        split="test",
        prompt_field="problem",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    ),
    "aime24": _recipe(
        "AIME 2024",
        "not stated here: the problems are the MAA's, see the card",
        "The 30 problems of AIME I and II 2024, with whole numbers from 0 to 999 as answers. Thirty-two "
        "completions per problem: because there are few problems.",
        name="aime24",
        n=32,
        prompts=30,
        dataset="HuggingFaceH4/aime_2024",
        split="train",
        prompt_field="problem",
        revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    ),
    "aime25": _recipe(
        "AIME 2025",
        "not stated here: the problems are the MAA's, see the card",
        "The 30 problems of AIME I and II 2025. Thirty-two completions per problem.",
        name="aime25",
        n=32,
        prompts=30,
        dataset="math-ai/aime25",
        split="test",
        prompt_field="problem",
        revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
    ),
    "gsm8k": _recipe(
        "GSM8K test",
        "MIT",
        "The 1,319 word problems of the test split. One completion per problem: there are enough of them.",
        name="gsm8k",
        n=1,
        prompts=1_319,
        dataset="openai/gsm8k",
        subset="main",
        split="test",
        answer_after="####",
        revision="740312add88f781978c0658806c59bc2815b9866",
    ),
}
