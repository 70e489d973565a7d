"""The choice among the rows of datasets: which of them train, and in which order."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.config.base import Frozen, refusal

FieldName = Annotated[str, Field(max_length=128)]


class DataConfig(Frozen):
    """The rows of files and hub datasets that train. Held-out rows are never dropped."""

    duplicates: Literal["keep", "drop"] = "keep"
    """drop: of rows with the same question, apart from case and white space, the first one trains."""

    near_duplicates: Literal["ignore", "report", "drop"] = "ignore"
    """Rows much like an earlier one or like a held-out question, with the same numbers in them: report counts
    and names them, drop leaves them out."""

    similarity: Annotated[float, Field(ge=0.5, le=1)] = 0.7
    """Share of three-word sequences that near duplicates have in common (Jaccard index)."""

    contamination: Literal["ignore", "report", "drop"] = "ignore"
    """Training rows that share `ngram` words in a row with a held-out question of any source: report counts
    and names them, drop leaves them out (GPT-3, arXiv:2005.14165, appendix C)."""

    ngram: Annotated[int, Field(ge=5, le=50)] = 13
    """Words and signs in a row that count as an overlap: 13 in GPT-3, 8 in stricter checks. Shorter questions
    overlap when they are equal."""

    pass_rate_field: FieldName = ""
    """Column with a measured pass rate of each row, 0..1."""

    pass_rates: Annotated[
        str, Field(pattern=r"^([0-9a-f]{64})?$", json_schema_extra={"format": "pass_rates"})
    ] = ""
    """Pass rates that an earlier run measured, stored when that run is chosen: the hash of their content."""

    min_pass_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Rows with a lower pass rate are left out; e.g. 0.1 drops rows that are never solved."""

    max_pass_rate: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Rows with a higher pass rate are left out; e.g. 0.9 drops rows that teach nothing more."""

    curriculum: Literal["none", "easy_first"] = "none"
    """easy_first: each pass goes from easy rows to hard ones, by `difficulty_field`, else by the pass rate;
    rows of equal difficulty in the order that sampling.order names."""

    difficulty_field: FieldName = ""
    """Column with the difficulty of each row, a number or a text that ends with one, e.g. Level 3."""

    @property
    def is_default(self) -> bool:
        """Whether all rows train, in the plain order."""
        return self == DataConfig(ngram=self.ngram, similarity=self.similarity)

    @property
    def has_limits(self) -> bool:
        """Whether some pass rates are refused."""
        return self.min_pass_rate > 0 or self.max_pass_rate < 1

    @property
    def has_rates(self) -> bool:
        """Whether pass rates of rows are known."""
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
            raise refusal(errors)
        return self
