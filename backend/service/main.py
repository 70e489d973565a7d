"""The HTTP service."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp
from starlette_compress import CompressMiddleware, remove_compress_type

from backend.analysis.diagnosis import api as diagnosis
from backend.analysis.evaluations import api as evaluations
from backend.base.redaction import learn_secrets
from backend.base.settings import Settings
from backend.catalog.datasets import api as datasets
from backend.catalog.datasets.files import Uploads
from backend.exchange.archives import api as archives
from backend.exchange.exports import api as exports
from backend.exchange.imports import api as imports
from backend.exchange.push import api as pushes
from backend.experiments import api as experiments
from backend.experiments import catalog
from backend.experiments.matrix import api as matrix
from backend.experiments.searches import api as searches
from backend.experiments.trials import api as trials
from backend.http import frontend as pages
from backend.http import help as help_pages
from backend.http import help_api, session
from backend.http.access_log import AccessLog
from backend.http.auth.sessions import BrowserSessions
from backend.http.auth.tokens import fingerprint
from backend.http.dependencies import Lab
from backend.http.guard import Guard
from backend.http.openapi import complete_schema
from backend.http.problem_details import add_error_handlers
from backend.http.read_budget import ReadBudget
from backend.http.shared_responses import SharedResponses
from backend.http.timeout import RequestTimeout
from backend.metrics import api as metrics
from backend.rollouts import api as rollouts
from backend.rollouts.breakdown import api as rollout_breakdown
from backend.rollouts.search import api as rollout_search
from backend.runs import api as runs
from backend.runs import list_api as run_lists
from backend.runs.high_water_mark import report_if_older
from backend.runs.workers import api as workers
from backend.service.live import api as live
from backend.service.live.api import end_streams_at_signals
from backend.service.live.broadcaster import Broadcaster
from backend.service.maintenance.reconciler import Reconciler
from backend.service.monitoring import health, status
from backend.service.webhook.sender import Sender
from backend.storage.engine import open_engine, open_sessions

VERSION = "0.3.0"
MAX_THREADS = 64
"""Maximum number of requests that are processed at the same time, and of database connections in the pool."""


remove_compress_type("text/event-stream")  # its messages are too small to be compressed


class Service(FastAPI):
    """FastAPI behind the guard, which admits a request before even an error page is generated."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which is generated once."""
        if not self.openapi_schema:
            self.openapi_schema = complete_schema(super().openapi())
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        """Return the routes with all middleware around them."""
        lab: Lab = self.state.lab
        stack = super().build_middleware_stack()
        sessions: BrowserSessions = self.state.browser_sessions
        within_limits = ReadBudget(RequestTimeout(stack), limit=lab.settings.reads_per_token)
        compressed_app = CompressMiddleware(within_limits, minimum_size=1_000, brotli=False, zstd_level=1)
        return AccessLog(Guard(compressed_app, lab.settings, self.router.routes, sessions))


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the application, which `grpolab serve` runs."""
    settings = settings or Settings()
    learn_secrets(settings)
    engine = open_engine(settings.effective_database_url)
    app = Service(
        title="GRPO Lab",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,  # otherwise an id of only slashes would refer to the list
        lifespan=_life,
    )
    app.state.lab = Lab(settings, engine, open_sessions(engine))
    app.state.shared_responses = SharedResponses()
    app.state.broadcaster = Broadcaster(app.state.lab.sessions, lambda: fingerprint(settings))
    app.state.browser_sessions = BrowserSessions(app.state.lab.sessions)
    app.state.streams = Counter()
    app.state.status = status.Status(settings)
    app.state.reconciler = Reconciler(settings, app.state.lab.sessions)
    app.state.webhook = Sender(settings, app.state.lab.sessions)
    add_error_handlers(app)
    for module in (
        catalog,
        datasets,
        experiments,
        evaluations,
        imports,
        archives,
        exports,
        pushes,
        run_lists,
        runs,
        metrics,
        matrix,
        rollouts,
        rollout_search,
        rollout_breakdown,
        diagnosis,
        trials,
        searches,
        workers,
        live,
        session,
        help_pages,
        help_api,
        status,
        health,
    ):
        app.router.routes.extend(module.router.routes)  # an included router would match each path twice
    pages.serve_pages(app)
    return app


def _look_for_older(app: FastAPI) -> None:
    """Report in the log and on every page if the database has lost its newest transactions."""
    lab: Lab = app.state.lab
    with (
        suppress(SQLAlchemyError),
        lab.sessions.begin() as session,
    ):  # the status page reports an unavailable database
        if loss := report_if_older(lab.settings, session):
            app.state.status.older = loss.sentence


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    lab: Lab = app.state.lab
    anyio.to_thread.current_default_thread_limiter().total_tokens = MAX_THREADS
    end_streams_at_signals(app.state.broadcaster)
    with suppress(OSError):  # an upload reports an unwritable directory
        await anyio.to_thread.run_sync(Uploads(lab.settings.datasets_dir).sweep)
    await anyio.to_thread.run_sync(_look_for_older, app)
    reconciler: Reconciler = app.state.reconciler
    reconciler.start()
    app.state.webhook.start()
    try:
        yield
    finally:
        app.state.broadcaster.close()
        await anyio.to_thread.run_sync(app.state.webhook.stop)
        await anyio.to_thread.run_sync(reconciler.stop)
        app.state.status.close()
        lab.engine.dispose()
