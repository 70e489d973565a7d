"""Episodes with an OpenEnv server. Each turn of the policy is an action that the server answers.

    begin      up to the server's limit of episodes, each with a session and its prompt's seed
        round n    unfinished episodes write their next turn
        act        each turn is a step, whose result is appended as an observation
        end        at the environment's end, at a limit, or if the environment fails; the next episode begins

A resumed run repeats its episodes exactly if the environment's answers depend only on seed and actions, and
if the server's limit of sessions has not changed.
"""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Lock
from typing import Any

import torch

from backend.base.settings import Settings
from backend.config.environments import OpenEnv
from worker.policy.model import Policy
from worker.prompt import Prompt
from worker.rollout.engine import Samples, SamplingLike, encoded_prompts
from worker.rollout.openenv.actions import ActionSchema, BadAction, BadSchema, act_schema, action_form
from worker.rollout.openenv.answers import Full, Lost, ObservedStep, Refused
from worker.rollout.openenv.observation import prompt_text
from worker.rollout.openenv.server import (
    WAIT_SECONDS,
    BegunEpisode,
    EnvironmentServer,
    close_all,
    episode_seed,
    safe_message,
)
from worker.rollout.openenv.session import Session
from worker.rollout.tool_calls import ParsedCall
from worker.rollout.tools import ToolResult
from worker.rollout.turns import Episode, TurnTaking, require_call
from worker.types import Completion, EpisodeResult

ALL_LOST = "no episode of a step came to its end; the last one: "


@dataclass(slots=True, eq=False)
class PlayedEpisode(Episode):
    """Episode in the environment."""

    session: Session | None = None
    rewards: list[float] = field(default_factory=list)
    is_done: bool = False
    lost: str = ""
    """Reason why the environment failed the episode, or "" if it did not."""


class OpenEnvEpisodes(TurnTaking):
    """Samples completions in turns with another sampler, each in a separate episode."""

    def __init__(self, config: OpenEnv, policy: Policy, settings: Settings) -> None:
        """Create the episodes.

        Raise InvalidConfig if the policy's chat template lacks a turn that the form needs, and
        EnvironmentFailed if this installation has no such server.
        """
        self.config, self.server = config, EnvironmentServer(config, settings)
        self.acts = action_form(config, policy)
        super().__init__(
            policy,
            self.acts.calls,
            max_turns=config.max_turns,
            max_observation_tokens=config.max_observation_tokens,
        )
        self._schema: ActionSchema | None = None
        self._turn = Lock()
        """Lock held while episodes run, because evaluations and asynchronous rollouts may sample
        concurrently.
        """
        self._losses: list[str] = []

    def check(self) -> None:
        """See TakesTurns."""
        try:
            if self.acts.is_text:
                _ = self.schema.text_field
        except BadSchema as error:
            raise self.server.failed(str(error)) from error
        self.server.learn_limit()

    def close(self) -> None:
        """See TakesTurns. The sessions are closed with their episodes."""

    def take_loss(self) -> str:
        """See TakesTurns."""
        losses, self._losses = self._losses, []
        if not losses:
            return ""
        cause = f"by the environment {self.config.server}"
        return f"{len(losses)} episodes were lost {cause}; the last: {losses[-1]}"

    @property
    def schema(self) -> ActionSchema:
        """The actions that the server accepts."""
        if self._schema is None:
            self._schema = self.server.schema()
        return self._schema

    def prepare_prompts(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompts with the environment's first observation and the action function."""
        with self._turn, ThreadPoolExecutor(max(1, min(self.server.limit, len(prompts)))) as pool:
            return list(pool.map(self._show_prompt, prompts))

    def _show_prompt(self, prompt: Prompt) -> Prompt:
        try:
            begun = self.server.begin_in_turn(episode_seed(prompt.id))
        except Lost:
            return prompt  # Its episodes are lost too and report the reason.
        begun.session.close()
        first = prompt_text(begun.text, self.encoder, limit=self.max_observation_tokens)
        tools = prompt.tools if self.acts.is_text else (*prompt.tools, act_schema(self.schema))
        return replace(
            prompt,
            text=f"{prompt.text.rstrip()}\n{first}",
            messages=_append_to_user(prompt.messages, first) if prompt.messages else (),
            tools=tools,
            beginning=_digest(begun.text),
        )

    def sample(
        self,
        samples: Samples,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
    ) -> list[list[Completion]]:
        """See TakesTurns. Raise EnvironmentFailed if the environment fails all episodes."""
        prompt_ids = encoded_prompts(self.policy, prompts, sampling)
        seed = int(torch.randint(2**62, (), generator=generator))
        episodes = [
            PlayedEpisode(prompt, ids, sampling.max_new_tokens)
            for prompt, ids in zip(prompts, prompt_ids, strict=True)
            for _ in range(group_size)
        ]
        with self._turn:
            self._play(episodes, samples, sampling, seed)
        losses = [episode.lost for episode in episodes if episode.lost]
        if len(losses) == len(episodes):
            raise self.server.failed(ALL_LOST + losses[-1])
        self._losses += losses
        completions = [self._completion(episode, self._result(episode)) for episode in episodes]
        return [completions[first : first + group_size] for first in range(0, len(completions), group_size)]

    def _play(
        self, episodes: Sequence[PlayedEpisode], samples: Samples, sampling: SamplingLike, seed: int
    ) -> None:
        queue, unfinished_episodes, number = deque(episodes), list[PlayedEpisode](), 0
        try:
            while queue or unfinished_episodes:
                unfinished_episodes += self._begin(queue, self.server.limit - len(unfinished_episodes))
                self._go_on(samples, unfinished_episodes, sampling, seed, number)
                self._act(unfinished_episodes)
                _end([episode for episode in unfinished_episodes if episode.is_over])
                unfinished_episodes = [episode for episode in unfinished_episodes if not episode.is_over]
                number += 1
        finally:
            _end(unfinished_episodes)

    def _begin(self, waiting_episodes: deque[PlayedEpisode], limit: int) -> list[PlayedEpisode]:
        """Begin at most `limit` of the next episodes and return them.

        Fewer begin if the server is full, and none only if others are running. Raise EnvironmentFailed if the
        server stays full.
        """
        deadline = time.monotonic() + self.config.wait_seconds
        while True:
            candidates = [waiting_episodes.popleft() for _ in range(min(limit, len(waiting_episodes)))]
            outcomes = self.server.begin_all([episode_seed(episode.prompt.id) for episode in candidates])
            begun_episodes, rejected_episodes = list[PlayedEpisode](), list[PlayedEpisode]()
            for episode, outcome in zip(candidates, outcomes, strict=True):
                if isinstance(outcome, Full):
                    rejected_episodes.append(episode)
                else:
                    begun_episodes.append(self._begin_episode(episode, outcome))
            waiting_episodes.extendleft(reversed(rejected_episodes))
            is_alone = limit == self.server.limit
            if begun_episodes or not rejected_episodes or not is_alone:
                return begun_episodes
            if time.monotonic() > deadline:
                seconds = f"{self.config.wait_seconds:g}"
                raise self.server.failed(f"it had no place for a session within {seconds} seconds")
            time.sleep(WAIT_SECONDS)

    def _begin_episode(self, episode: PlayedEpisode, became: BegunEpisode | Lost) -> PlayedEpisode:
        """Return the episode after its beginning. A lost episode writes a single turn, which is not
        trained on.
        """
        if isinstance(became, Lost):
            episode.lost = safe_message(str(became))
            return episode
        episode.session = became.session
        if _digest(became.text) != episode.prompt.beginning:
            episode.lost = "its first observation is another one than in the prompt, for the same seed"
        return episode

    def _call(self, episode: Episode, turn_ids: list[int]) -> ParsedCall | None:  # noqa: ARG002 - defined by the base class
        """Return the action of a turn that the policy has ended. The last token is the stop token."""
        return self.form.find("".join(self._token_strings(turn_ids)[:-1]))

    def _act(self, unfinished_episodes: Sequence[PlayedEpisode]) -> None:
        acting_episodes = []
        for episode in unfinished_episodes:
            if episode.lost:
                episode.is_over = True
            elif episode.call is not None:
                acting_episodes.append(episode)
        with ThreadPoolExecutor(max(1, len(acting_episodes))) as pool:
            answers = list(pool.map(self._step_episode, acting_episodes))
        for episode, answer in zip(acting_episodes, answers, strict=True):
            self._take_answer(episode, require_call(episode.call), answer)
            episode.call = None

    def _step_episode(self, episode: PlayedEpisode) -> ToolResult:
        """Send an action and return its answer.

        The action is sent only once, because a failed environment may have acted on it.
        """
        started_at = time.perf_counter()
        text, outcome = self._step(episode)
        return ToolResult(text, outcome, time.perf_counter() - started_at)

    def _step(self, episode: PlayedEpisode) -> tuple[str, str]:
        if episode.session is None:
            raise ValueError("an episode that did not begin has no turn to answer")
        try:
            action = self.acts.action(require_call(episode.call).call, self.schema)
            observed_step = episode.session.step(action, seconds=self.config.step_seconds)
            return self._add_observation(episode, observed_step)
        except BadAction as error:
            return f"error: {error}", "failed"
        except Refused as error:
            return f"error: {error}", "failed"
        except Lost as error:
            episode.lost = safe_message(str(error))
            return "", "lost"

    def _add_observation(self, episode: PlayedEpisode, observed_step: ObservedStep) -> tuple[str, str]:
        text = "" if observed_step.done else self.server.text(observed_step)
        if observed_step.reward is not None:
            episode.rewards.append(observed_step.reward)
        if not math.isfinite(sum(episode.rewards)):
            raise Lost("the sum of its rewards is not finite")
        episode.is_done = observed_step.done
        return text, "done" if observed_step.done else "ok"

    def _take_answer(self, episode: PlayedEpisode, call: ParsedCall, answer: ToolResult) -> None:
        """Append the observation, unless the episode is over so that nothing would read it."""
        turn = self._make_turn(episode, call)
        is_last = episode.answered_calls + 1 >= self.max_turns
        if is_last or answer.outcome in {"done", "lost"}:
            episode.is_over = True
        elif self._observe(episode, call, turn, answer):
            return
        else:
            episode.is_over, episode.stopped = True, False
        episode.turns.append(turn._replace(outcome=answer.outcome, seconds=answer.seconds))

    def _result(self, episode: PlayedEpisode) -> EpisodeResult:
        if episode.lost:
            return EpisodeResult(None, is_done=False)
        rewards = episode.rewards or [0.0]
        reward = rewards[-1] if self.config.reward == "last" else sum(rewards)
        return EpisodeResult(reward, episode.is_done)


def _end(episodes: Sequence[PlayedEpisode]) -> None:
    """Close the sessions of episodes to make room for queued ones."""
    close_all([episode.session for episode in episodes if episode.session is not None])
    for episode in episodes:
        episode.session = None


def _append_to_user(messages: Sequence[Mapping[str, Any]], text: str) -> tuple[Mapping[str, Any], ...]:
    """Append a text to the last user turn of a conversation, because templates require alternating roles."""
    *earlier_messages, last_message = messages
    if last_message.get("role") == "user" and isinstance(last_message.get("content"), str):
        return (*earlier_messages, {**last_message, "content": f"{last_message['content'].rstrip()}\n{text}"})
    return (*messages, {"role": "user", "content": text})


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:32]
