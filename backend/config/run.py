"""RunConfig, the complete and validated config of a run."""

from pydantic import model_validator

from backend.config.base import combination_error
from backend.config.rules.combinations import combination_errors
from backend.config.sections import RunSections


class RunConfig(RunSections):
    """The config of a run. Contradictory sections are refused."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "RunConfig":
        if errors := combination_errors(self):
            raise combination_error(errors)
        return self
