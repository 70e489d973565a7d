"""Config that selects the rows of datasets for training and their order."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.config.base import Frozen, combination_error

FieldName = Annotated[str, Field(max_length=128)]


class DataConfig(Frozen):
    """The selection of training rows from files and hub datasets. Held-out rows are never dropped."""

    duplicates: Literal["keep", "drop"] = "keep"
    """With drop, only the first of several rows with the same question is
    trained on. Case and white space are ignored.
    """

    near_duplicates: Literal["ignore", "report", "drop"] = "ignore"
    """Treatment of rows that are similar to an earlier row or to a held-out question and contain the same
    numbers: report counts and lists them, drop leaves them out.
    """

    similarity: Annotated[float, Field(ge=0.5, le=1)] = 0.7
    """Minimum similarity of near duplicates: the Jaccard index of their three-word sequences."""

    contamination: Literal["ignore", "report", "drop"] = "ignore"
    """Treatment of training rows that share `ngram` consecutive words with a held-out question of any source:
    report counts and lists them, drop leaves them out (GPT-3, arXiv:2005.14165, appendix C)."""

    ngram: Annotated[int, Field(ge=5, le=50)] = 13
    """Number of consecutive words and signs that count as an overlap: 13 in GPT-3, 8 in stricter checks.
    Shorter questions overlap if they are equal.
    """

    pass_rate_field: FieldName = ""
    """Column that contains a measured pass rate of each row, from 0 to 1."""

    pass_rates: Annotated[
        str, Field(pattern=r"^([0-9a-f]{64})?$", json_schema_extra={"format": "pass_rates"})
    ] = ""
    """Hash of the stored pass rates that an earlier run measured. They are stored when that run is chosen."""

    min_pass_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Minimum pass rate of training rows. For example, 0.1 drops rows that are never solved."""

    max_pass_rate: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Maximum pass rate of training rows. For example, 0.9 drops rows that are almost always solved."""

    curriculum: Literal["none", "easy_first"] = "none"
    """With easy_first, each pass goes from easy rows to hard ones, by `difficulty_field` or else by the pass
    rate. Rows of equal difficulty have the order of sampling.order.
    """

    difficulty_field: FieldName = ""
    """Column that contains the difficulty of each row: a number, or text that ends with one, e.g. Level 3."""

    @property
    def is_default(self) -> bool:
        """Whether all rows are trained on, in the order of sampling.order."""
        return self == DataConfig(ngram=self.ngram, similarity=self.similarity)

    @property
    def has_limits(self) -> bool:
        """Whether rows are selected by their pass rate."""
        return self.min_pass_rate > 0 or self.max_pass_rate < 1

    @property
    def has_rates(self) -> bool:
        """Whether the rows have pass rates."""
        return bool(self.pass_rate_field or self.pass_rates)

    @model_validator(mode="after")
    def _makes_sense(self) -> "DataConfig":
        errors = []
        if self.min_pass_rate > self.max_pass_rate:
            reason = f"is {self.max_pass_rate:g}: expected at least min_pass_rate = {self.min_pass_rate:g}"
            errors.append(("max_pass_rate", reason))
        if self.has_limits and not self.has_rates:
            reason = "is empty: limits of the pass rate need the column that holds it, or pass_rates"
            errors.append(("pass_rate_field", reason))
        if self.pass_rate_field and self.pass_rates:
            errors.append(("pass_rates", "is set, and pass_rate_field too: leave one of them empty"))
        if self.curriculum == "easy_first" and not (self.difficulty_field or self.has_rates):
            reason = "is empty: a curriculum needs this, pass_rate_field or pass_rates"
            errors.append(("difficulty_field", reason))
        if errors:
            raise combination_error(errors)
        return self
