"""Turns of a completion, which all kinds of episodes share.

engine     continues until an episode makes a call or ends
answers    are appended as observations: tokens that the policy did not write
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from worker.policy.model import Policy
from worker.prompt import Prompt
from worker.rollout.engine import Samples, SamplingLike
from worker.rollout.observations import ObservationEncoder
from worker.rollout.sampler import Decoding
from worker.rollout.tool_calls import CallForm, ParsedCall
from worker.rollout.tools import ToolResult
from worker.types import Completion, EpisodeResult, Turn

UNANSWERED = "unanswered"


@dataclass(slots=True)
class Episode:
    """One completion while it is being written."""

    prompt: Prompt
    prompt_ids: list[int]
    limit: int
    """Maximum number of tokens of the completion, observations included."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[NDArray[np.float32]] = field(default_factory=list)
    entropies: list[NDArray[np.float32]] = field(default_factory=list)
    generated: list[bool] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    turn_start: int = 0
    """Index of the first token after the last observation."""
    call: ParsedCall | None = None
    """Call that is not answered yet."""
    is_over: bool = False
    stopped: bool = False
    """True if the policy ended the completion."""
    version: int = 0

    @property
    def room(self) -> int:
        """Number of tokens that may still be added."""
        return self.limit - len(self.ids)

    @property
    def answered_calls(self) -> int:
        """Number of calls that have been answered."""
        return sum(turn.outcome != UNANSWERED for turn in self.turns)

    def write(self, completion: Completion, count: int) -> None:
        """Append the first `count` tokens of the policy's new text."""
        entropies = (
            np.zeros(len(completion), np.float32) if completion.entropies is None else completion.entropies
        )
        self.ids += completion.ids[:count].tolist()
        self.logprobs.append(completion.sampler_logprobs[:count])
        self.entropies.append(entropies[:count])
        self.generated += [True] * count
        self.version = completion.version

    def observe(self, ids: Sequence[int]) -> None:
        """Append an observation. Its sampler values are 0, because the policy did not sample it."""
        blank = np.zeros(len(ids), np.float32)
        self.ids += ids
        self.logprobs.append(blank)
        self.entropies.append(blank)
        self.generated += [False] * len(ids)
        self.turn_start = len(self.ids)


class TakesTurns(Protocol):
    """Samples completions in turns, with answers between turns."""

    def check(self) -> None:
        """Raise EnvironmentFailed, before the first step, if tools or environment cannot work."""
        ...

    def prepare_prompts(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompts with the description of the environment for the policy."""
        ...

    def sample(
        self,
        samples: Samples,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
    ) -> list[list[Completion]]:
        """Sample `group_size` completions of every prompt, in the order of the prompts."""
        ...

    def take_loss(self) -> str:
        """Return a sentence about episodes lost since the last call, or "" if there were none."""
        ...

    def close(self) -> None:
        """End every process and connection."""
        ...


class TurnTaking:
    """Continues completions turn by turn with another sampler."""

    def __init__(
        self, policy: Policy, form: CallForm, *, max_turns: int, max_observation_tokens: int
    ) -> None:
        self.policy, self.form = policy, form
        self.max_turns, self.max_observation_tokens = max_turns, max_observation_tokens
        self.encoder = ObservationEncoder(policy)
        self.stops = _marked_ids(policy, form.marks)
        self.max_rounds = 2 * max_turns + 2
        """Maximum number of rounds. After them, the stop tokens of calls are ignored, so no policy loops
        forever.
        """

    def _go_on(
        self,
        samples: Samples,
        unfinished: Sequence[Episode],
        sampling: SamplingLike,
        seed: int,
        number: int,
    ) -> None:
        """Sample the next turn of each unfinished episode."""
        if not unfinished:
            return
        groups = samples.generate(
            [episode.prompt_ids + episode.ids for episode in unfinished],
            1,
            turn_decoding(sampling, max(episode.room for episode in unfinished)),
            round_generator(seed, number),
            stops=self.stops if number < self.max_rounds else (),
        )
        self._take(unfinished, [completion for [completion] in groups])

    def _take(self, episodes: Sequence[Episode], completions: Sequence[Completion]) -> None:
        """Append the policy's new text up to the end of a call or of the remaining room."""
        for episode, completion in zip(episodes, completions, strict=True):
            count = min(len(completion), episode.room)
            stopped = completion.finish_reason == "stop" and count == len(completion)
            turn_ids = [*episode.ids[episode.turn_start :], *completion.ids[:count].tolist()]
            ends_here = not self.form.ends_turn or stopped
            call = self._call(episode, turn_ids) if ends_here else None
            if call is not None and not self.form.ends_turn:
                found_at = episode.turn_start + _tokens_until(self._token_strings(turn_ids), call.end)
                count, stopped = max(0, found_at - len(episode.ids)), False
            episode.write(completion, count)
            episode.call, episode.stopped = call, stopped
            at_end = episode.room <= 0 or (stopped and call is None)
            episode.is_over = at_end and call is None

    def _call(self, episode: Episode, turn_ids: list[int]) -> ParsedCall | None:
        """Return the call that this turn makes, if any. After the last turn, a call is only recorded."""
        if any(turn.outcome == UNANSWERED for turn in episode.turns):
            return None
        return self.form.find("".join(self._token_strings(turn_ids)))

    def _make_turn(self, episode: Episode, call: ParsedCall) -> Turn:
        """Return the unanswered turn of a call, with its position."""
        token_strings = self._token_strings(episode.ids[episode.turn_start :])
        first, end = (episode.turn_start + index for index in _span(token_strings, call))
        position = len(episode.ids)
        return Turn(call.call.tool or "?", UNANSWERED, 0.0, (first, end), (position, position))

    def _observe(self, episode: Episode, call: ParsedCall, turn: Turn, answer: ToolResult) -> bool:
        """Append the complete answer, or append nothing and return False if no tokens would remain to
        continue.
        """
        observation = self.encoder.answer(
            answer.text, limit=self.max_observation_tokens, frame=self.form.frame(call.call)
        )
        if len(observation.ids) >= episode.room:
            return False
        position = len(episode.ids)
        episode.observe(observation.ids)
        span = (position, len(episode.ids))
        episode.turns.append(
            Turn(turn.tool, answer.outcome, answer.seconds, turn.call, span, is_cut=observation.is_cut)
        )
        return True

    def _completion(self, episode: Episode, result: EpisodeResult | None = None) -> Completion:
        token_strings = self._token_strings(episode.ids)
        is_plain = all(episode.generated)
        return Completion(
            ids=np.array(episode.ids, np.int64),
            text="".join(token_strings[:-1] if episode.stopped else token_strings),
            token_strings=token_strings,
            finish_reason="stop" if episode.stopped else "length",
            sampler_logprobs=np.concatenate(episode.logprobs),
            entropies=np.concatenate(episode.entropies),
            prompt_tokens=len(episode.prompt_ids),
            version=episode.version,
            generated=None if is_plain else np.array(episode.generated),
            turns=tuple(episode.turns),
            episode=result,
        )

    def _token_strings(self, ids: list[int]) -> tuple[str, ...]:
        return self.policy.token_texts.decode_each(ids)


def require_call(call: ParsedCall | None) -> ParsedCall:
    """Return the call, or raise ValueError if it is None."""
    if call is None:
        raise ValueError("an episode without a call waits for no answer")
    return call


def turn_decoding(sampling: SamplingLike, tokens: int) -> Decoding:
    """Return the sampling rules with a limit of `tokens` tokens."""
    return Decoding(tokens, sampling.temperature, sampling.top_p, sampling.top_k)


def round_generator(seed: int, number: int) -> torch.Generator:
    """Return the random generator of a round."""
    digest = sha256(f"{seed}/round/{number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7]))


def _tokens_until(token_strings: Sequence[str], end: int) -> int:
    """Return the number of tokens that contain the first `end` characters."""
    total = 0
    for count, token_string in enumerate(token_strings, start=1):
        total += len(token_string)
        if total >= end:
            return count
    return len(token_strings)


def _span(token_strings: Sequence[str], call: ParsedCall) -> tuple[int, int]:
    """Return the index of a call's first token and the index after its last token."""
    return max(0, _tokens_until(token_strings, call.start + 1) - 1), _tokens_until(token_strings, call.end)


def _marked_ids(policy: Policy, marks: Sequence[str]) -> list[int]:
    """Return the token ids whose text contains one of the marks, all of which are ASCII."""
    vocabulary: dict[str, int] = policy.tokenizer.get_vocab()
    return sorted(index for token, index in vocabulary.items() if any(mark in token for mark in marks))
