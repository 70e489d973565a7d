"""Base exceptions of the service. More specific exceptions are defined in the packages that raise them.

GrpoLabError
├── NotFound            404
├── Conflict            409
├── Gone                410
├── InvalidRequest      422  (carries one message per field)
│   └── InvalidConfig   422
├── Unavailable         503
├── TooMany             429
├── PluginFailed        a user's own reward or problem source cannot be called, or fails repeatedly
├── RewardServerFailed  a judge or reward model is not configured, is down, or returns invalid answers
├── EngineFailed        the server that samples is not configured, is down, or returns invalid answers
├── EnvironmentFailed   a tool of an environment cannot work here, or the environment's server fails
└── Fenced              this trainer no longer owns its run
"""

from typing import NamedTuple


class FieldError(NamedTuple):
    """An error in one field of a request."""

    path: str
    """Dotted path of the field, e.g. `objective.surrogate.eps_low`."""

    message: str
    """Message that names the given value and the expected one."""

    position: int | None = None
    """Index of the character at which the error was found, starting at 0, or None if it is not known."""


class GrpoLabError(Exception):
    """Base class of all errors with a message for the user."""

    status = 500
    title = "Internal error"
    retry_seconds = 0
    """Seconds after which a retry may succeed, or 0 if unknown."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NotFound(GrpoLabError):
    """The requested object does not exist."""

    status = 404
    title = "Not found"


class RunNotFound(NotFound):
    """No run has this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r}")


class ExperimentNotFound(NotFound):
    """No experiment has this id."""

    def __init__(self, experiment_id: str) -> None:
        super().__init__(f"there is no experiment {experiment_id!r}")


class Conflict(GrpoLabError):
    """The object's state does not allow the request."""

    status = 409
    title = "Conflict"


class MoveForbidden(Conflict):
    """A run in this status does not allow the action."""

    def __init__(self, run_id: str, status: str, action: str, allowed_statuses: str) -> None:
        super().__init__(f"run {run_id!r} is {status}; {action} needs a run that is {allowed_statuses}")


class Gone(GrpoLabError):
    """The object was moved to the trash, so a client that pushes to it should stop."""

    status = 410
    title = "Gone"


class InvalidRequest(GrpoLabError):
    """The request is invalid. `errors` has an entry for each invalid field."""

    status = 422
    title = "Invalid request"

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{error.path}: {error.message}" for error in errors))
        self.errors = errors


class InvalidConfig(InvalidRequest):
    """The configuration cannot be run. `errors` has an entry for each invalid field."""

    title = "Invalid configuration"


class Unavailable(GrpoLabError):
    """A required service is temporarily unavailable."""

    status = 503
    title = "Unavailable"
    retry_seconds = 5


class TooMany(GrpoLabError):
    """The client has reached its maximum number of concurrent requests of this kind."""

    status = 429
    title = "Too many requests"
    retry_seconds = 15


class PluginFailed(GrpoLabError):
    """A user's own reward or problem source raised, hung or returned an invalid value. The run fails."""

    title = "Plugin failed"


class RewardServerFailed(GrpoLabError):
    """The server of a reward is not configured, is down, or returns invalid answers. The run fails."""

    title = "Reward server failed"


class EngineFailed(GrpoLabError):
    """The server that samples is not configured, is down, has wrong weights or returns invalid answers."""

    title = "Engine failed"


class EnvironmentFailed(GrpoLabError):
    """A tool of the run's environment cannot work on this machine, or the environment's server fails."""

    title = "Environment failed"


class Fenced(GrpoLabError):
    """Another attempt owns the run, so this one must stop without writing anything else."""

    status = 409
    title = "Fenced"

    def __init__(self, run_id: str, attempt: int) -> None:
        super().__init__(f"attempt {attempt} no longer owns run {run_id!r}")
