"""Well-known training datasets for reasoning models, with the problem configs that read them."""

from backend.config.base import Frozen
from backend.config.problems import HubProblem, ProblemSource, ReasoningGymProblem


class DataRecipe(Frozen):
    """A dataset with the config that is needed to train on it."""

    title: str
    """Common name of the dataset."""

    family: str
    """Group of the dataset in the form: from the hub, or generated."""

    source: str
    """Name of the dataset on the hub, or of the library that generates it."""

    licence: str
    """Licence according to the dataset card. Read the card before you publish."""

    note: str
    """Description of the dataset and of how it is read."""

    problems: tuple[ProblemSource, ...]
    """Problem sources that the recipe adds to the config."""


HUB, HERE = "From the hub (HF_ONLINE=1)", "Generated here"

DATA_RECIPES: dict[str, DataRecipe] = {
    "gsm8k": DataRecipe(
        title="GSM8K",
        family=HUB,
        source="openai/gsm8k",
        licence="MIT",
        note="7,473 word problems of grade-school mathematics; the 1,319 of the test split are held out. The "
        "answer is what follows #### in the solution.",
        problems=(
            HubProblem(
                dataset="openai/gsm8k",
                subset="main",
                eval_split="test",
                answer_after="####",
                domain="math",
                revision="740312add88f781978c0658806c59bc2815b9866",
            ),
        ),
    ),
    "math": DataRecipe(
        title="MATH",
        family=HUB,
        source="DigitalLearningGmbH/MATH-lighteval",
        licence="MIT",
        note="7,500 competition problems; MATH-500 is held out, which is drawn from MATH's test split. The "
        "answer is the last box of the solution. Rows have their level and type as further columns.",
        problems=(
            HubProblem(
                dataset="DigitalLearningGmbH/MATH-lighteval",
                eval_dataset="HuggingFaceH4/MATH-500",
                eval_split="test",
                prompt_field="problem",
                answer_field="solution",
                answer_form="boxed",
                domain="math",
                revision="0530c78699ea5e8eb5530600900e1f328b48acad",
                eval_revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            ),
        ),
    ),
    "dapo_math_17k": DataRecipe(
        title="DAPO-Math-17k",
        family=HUB,
        source="open-r1/DAPO-Math-17k-Processed",
        licence="Apache-2.0 (of the original, BytedTsinghua-SIA/DAPO-Math-17k)",
        note="About 14,000 English problems with whole numbers as answers, without the repetitions of "
        "the original's 1.8 million rows. A tenth is held out. No commit is pinned: the newest one is filled "
        "in at launch.",
        problems=(
            HubProblem(
                dataset="open-r1/DAPO-Math-17k-Processed",
                subset="en",
                prompt_field="prompt",
                answer_field="solution",
                domain="math",
            ),
        ),
    ),
    "countdown": DataRecipe(
        title="Countdown",
        family=HERE,
        source="reasoning_gym",
        licence="Apache-2.0",
        note="Reach a number with the given ones and + - * /, three or four of them as in TinyZero; any "
        "right expression counts. Endless, graded by the library's rules.",
        problems=(ReasoningGymProblem(task="countdown", task_config={"min_numbers": 3, "max_numbers": 4}),),
    ),
    "reasoning_mixture": DataRecipe(
        title="reasoning-gym mixture",
        family=HERE,
        source="reasoning_gym",
        licence="Apache-2.0",
        note="Arithmetic, algebra, logic and puzzles: eight tasks in equal shares, each a source of its own. "
        "Endless, graded by the library's rules.",
        problems=tuple(
            ReasoningGymProblem(task=task, domain=domain)
            for task, domain in (
                ("chain_sum", "arithmetic"),
                ("gcd", "arithmetic"),
                ("simple_equations", "algebra"),
                ("leg_counting", "arithmetic"),
                ("knights_knaves", "logic"),
                ("syllogism", "logic"),
                ("countdown", "games"),
                ("number_sequence", "cognition"),
            )
        ),
    ),
}
