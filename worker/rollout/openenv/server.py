"""The OpenEnv server of a run: its schema, its episodes and its session limit."""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

import httpx2

from backend.base.errors import EnvironmentFailed
from backend.base.redaction import redact
from backend.base.settings import Settings
from backend.base.text import clean_text, read_json
from backend.config.environments import OpenEnv
from worker.rewards.endpoint import ResponseTooLong, pause_seconds, read_answer
from worker.rollout.openenv.actions import ActionSchema, BadSchema
from worker.rollout.openenv.answers import MAX_SHOWN_CHARACTERS, Full, Lost, ObservedStep, Refused
from worker.rollout.openenv.observation import render
from worker.rollout.openenv.session import CONNECT_SECONDS, MAX_BYTES, Session

logger = logging.getLogger(__name__)

MAX_RESETS = 3
"""Number of tries of a reset, each in a new session, because nothing has been done in it yet."""

WAIT_SECONDS = 0.2
"""Seconds between two requests for a free session."""


class BegunEpisode(NamedTuple):
    """An episode that a server has begun."""

    session: Session
    text: str
    """First observation of the episode."""


class EnvironmentServer:
    """The server that a run's config names. The constructor raises EnvironmentFailed if none is
    configured.
    """

    def __init__(self, config: OpenEnv, settings: Settings) -> None:
        self.config = config
        servers = settings.openenv_servers
        if config.server not in servers:
            raise EnvironmentFailed(f"OPENENV_URLS names no environment {config.server!r} here")
        self._url = servers[config.server]
        key = settings.openenv_secrets.get(config.server, "")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.limit = config.sessions
        """Maximum number of concurrent episodes."""

    def failed(self, reason: str) -> EnvironmentFailed:
        """Return the error that ends a run, without the operator's address."""
        return EnvironmentFailed(
            f"the environment {self.config.server} of OPENENV_URLS failed: {safe_message(reason)}"
        )

    def schema(self) -> ActionSchema:
        """Return the actions that the server accepts. Raise EnvironmentFailed."""
        try:
            return ActionSchema(self._get("/schema").get("action"))
        except (Lost, BadSchema) as error:
            raise self.failed(str(error)) from error

    def begin(self, seed: int) -> BegunEpisode:
        """Begin an episode with this seed, with a few tries. Raise Full or Lost."""
        for attempt in range(MAX_RESETS):
            try:
                return self._begin(seed)
            except Lost as error:
                if attempt == MAX_RESETS - 1:
                    raise
                logger.warning("an episode cannot begin: %s; trying again", safe_message(str(error)))
                time.sleep(pause_seconds(attempt, ""))
        raise AssertionError("the last try returns or raises")

    def begin_in_turn(self, seed: int) -> BegunEpisode:
        """Begin an episode with this seed as soon as there is a free session.

        Raise EnvironmentFailed or Lost.
        """
        deadline = time.monotonic() + self.config.wait_seconds
        while True:
            with suppress(Full):
                return self.begin(seed)
            if time.monotonic() > deadline:
                raise self.failed(
                    f"it had no place for a session within {self.config.wait_seconds:g} seconds"
                )
            time.sleep(WAIT_SECONDS)

    def begin_all(self, seeds: Sequence[int]) -> list[BegunEpisode | Full | Lost]:
        """Begin episodes in parallel and return each one, or the error that prevented it."""

        def begin_or_error(seed: int) -> BegunEpisode | Full | Lost:
            try:
                return self.begin(seed)
            except (Full, Lost) as error:
                return error

        with ThreadPoolExecutor(max(1, len(seeds))) as pool:
            return list(pool.map(begin_or_error, seeds))

    def learn_limit(self) -> None:
        """Determine the server's session limit by opening the maximum number of sessions of the run.

        Raise EnvironmentFailed if not even one begins.
        """
        try:
            first = self._first()
        except Lost as error:
            raise self.failed(str(error)) from error
        outcomes = self.begin_all([0] * (self.limit - 1))
        begun = [first, *(outcome for outcome in outcomes if isinstance(outcome, BegunEpisode))]
        close_all([outcome.session for outcome in begun])
        for outcome in outcomes:
            if isinstance(outcome, Lost):
                raise self.failed(str(outcome))
            if isinstance(outcome, Full):
                self.limit = min(self.limit, outcome.limit or len(begun))

    def _first(self) -> BegunEpisode:
        """Begin two episodes with the same seed in turn, check that they begin alike, and return one."""
        begun = self.begin_in_turn(0)
        first_text = begun.text
        begun.session.close()
        begun = self.begin_in_turn(0)
        if begun.text == first_text:
            return begun
        begun.session.close()
        raise Lost(
            "two resets with the same seed gave different observations; a group's episodes begin alike"
        )

    def _begin(self, seed: int) -> BegunEpisode:
        session = Session(self._url, self._headers)
        try:
            observed_step = session.reset(seed, seconds=self.config.reset_seconds)
            return BegunEpisode(session, self.text(observed_step))
        except Refused as error:
            session.close()
            raise Lost(f"it refused a reset: {error}") from error
        except BaseException:
            session.close()
            raise

    def text(self, observed_step: ObservedStep) -> str:
        """Return the text of an observation for the policy. Raise Lost if its field is missing."""
        return render(observed_step.observation, self.config.observation_field)

    def _get(self, path: str) -> dict[str, object]:
        """Return a JSON object of limited size, without following redirects. Raise Lost."""
        try:
            status, content = asyncio.run(self._answer(path))
            if status != 200:
                raise Lost(f"it answered {path} with status {status}, expected 200")
            answer = read_json(content)
        except TimeoutError as error:
            raise Lost(f"its answer to {path} takes too long") from error
        except ResponseTooLong as error:
            raise Lost(f"its answer to {path} is longer than {MAX_BYTES:,} bytes") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise Lost(f"it cannot be reached ({type(error).__name__})") from error
        except ValueError as error:
            raise Lost(f"its answer to {path} is not JSON") from error
        if not isinstance(answer, dict):
            raise Lost(f"its answer to {path} is not an object")
        return answer

    async def _answer(self, path: str) -> tuple[int, bytes]:
        async with (
            asyncio.timeout(3 * CONNECT_SECONDS),
            httpx2.AsyncClient(headers=self._headers, timeout=CONNECT_SECONDS, trust_env=False) as client,
        ):
            status, _, content = await read_answer(client, "GET", self._url + path, max_bytes=MAX_BYTES)
        return status, content


def close_all(sessions: Sequence[Session]) -> None:
    """Close sessions in parallel, because each waits for the server."""
    with ThreadPoolExecutor(max(1, min(len(sessions), 64))) as pool:
        list(pool.map(Session.close, sessions))


def episode_seed(prompt_id: str) -> int:
    """Return the seed of a prompt's episodes, which has 31 bits so that every random number generator
    accepts it.
    """
    return int.from_bytes(sha256(f"episode/{prompt_id}".encode()).digest()[:4]) >> 1


def safe_message(text: str) -> str:
    """Return a server's message on one line, shortened and without secrets."""
    return redact(" ".join(clean_text(text).split()))[:MAX_SHOWN_CHARACTERS]
