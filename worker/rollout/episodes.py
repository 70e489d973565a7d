"""Episodes: completions that are sampled in turns, with answers of tools between them.

    round 0    all completions, until each ends or has written a call
    tools      answer the calls; the answers are appended as observations
    round n    those that go on, each from where it stands, until none does

The random numbers of a round follow from one number of the caller's generator, so a resumed run repeats its
episodes wherever its tools give the same answers again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray

from backend.config.environments import Environment, NoEnvironment, ToolUse
from worker.policy.model import Policy
from worker.prompt import Prompt
from worker.rollout.engine import Samples, SamplingLike, encoded_prompts
from worker.rollout.observations import ObservationEncoder
from worker.rollout.sampler import Decoding
from worker.rollout.tool_calls import CallForm, FoundCall, call_form
from worker.rollout.tools import ToolAnswer, Toolbox, tool_schema
from worker.types import Completion, Turn

UNANSWERED = "unanswered"


@dataclass(slots=True)
class Episode:
    """One completion while it is written."""

    prompt: Prompt
    prompt_ids: list[int]
    most: int
    """Tokens that it may have, observations included."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[NDArray[np.float32]] = field(default_factory=list)
    entropies: list[NDArray[np.float32]] = field(default_factory=list)
    generated: list[bool] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    turn_start: int = 0
    """The first token behind the last observation."""
    call: FoundCall | None = None
    """The call that waits for its answer."""
    is_over: bool = False
    stopped: bool = False
    """Whether the policy ended it."""
    version: int = 0

    @property
    def room(self) -> int:
        """Tokens that may still follow."""
        return self.most - len(self.ids)

    @property
    def answered(self) -> int:
        """Calls that have been answered."""
        return sum(turn.outcome != UNANSWERED for turn in self.turns)

    def write(self, written: Completion, count: int) -> None:
        """Append the first `count` tokens of what the policy wrote."""
        entropies = np.zeros(len(written), np.float32) if written.entropies is None else written.entropies
        self.ids += written.ids[:count].tolist()
        self.logprobs.append(written.sampler_logprobs[:count])
        self.entropies.append(entropies[:count])
        self.generated += [True] * count
        self.version = written.version

    def observe(self, ids: Sequence[int]) -> None:
        """Append an observation; the numbers of a sampler that it has not are 0."""
        blank = np.zeros(len(ids), np.float32)
        self.ids += ids
        self.logprobs.append(blank)
        self.entropies.append(blank)
        self.generated += [False] * len(ids)
        self.turn_start = len(self.ids)


class Episodes:
    """Samples completions in turns with another sampler, and lets tools answer between them."""

    def __init__(self, config: ToolUse, policy: Policy) -> None:
        """Raises InvalidConfig where the policy's chat template has no turn of a tool."""
        self.config, self.policy, self.toolbox = config, policy, Toolbox(config)
        self.form: CallForm = call_form(config, policy)
        self.encoder = ObservationEncoder(policy)
        self.stops = _ids_with(policy, self.form.marks)
        self.most_rounds = 2 * config.max_turns + 2
        """Afterwards a policy that writes the end of a call time after time is sampled in one go."""

    def shown(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The prompts with the tools that a chat template shows."""
        if self.config.form != "template":
            return list(prompts)
        schemas = tuple(map(tool_schema, self.config.tools))
        return [replace(prompt, tools=(*prompt.tools, *schemas)) for prompt in prompts]

    def sample(
        self,
        samples: Samples,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
    ) -> list[list[Completion]]:
        """`group_size` completions of every prompt, in the order of the prompts."""
        encoded = encoded_prompts(self.policy, prompts, sampling)
        seed = int(torch.randint(2**62, (), generator=generator))
        episodes = [
            Episode(prompt, ids, sampling.max_new_tokens)
            for prompt, ids in zip(prompts, encoded, strict=True)
            for _ in range(group_size)
        ]
        found = samples.generate(
            encoded,
            group_size,
            _decoding(sampling, sampling.max_new_tokens),
            _round(seed, 0),
            stops=self.stops,
        )
        self._take(episodes, [completion for group in found for completion in group])
        number = 1
        while going := [episode for episode in episodes if not episode.is_over]:
            self._answer([episode for episode in going if episode.call is not None])
            self._go_on(samples, [each for each in going if not each.is_over], sampling, seed, number)
            number += 1
        done = [self._completion(episode) for episode in episodes]
        return [done[first : first + group_size] for first in range(0, len(done), group_size)]

    def _go_on(
        self,
        samples: Samples,
        going: Sequence[Episode],
        sampling: SamplingLike,
        seed: int,
        number: int,
    ) -> None:
        if not going:
            return
        found = samples.generate(
            [episode.prompt_ids + episode.ids for episode in going],
            1,
            _decoding(sampling, max(episode.room for episode in going)),
            _round(seed, number),
            stops=self.stops if number < self.most_rounds else (),
        )
        self._take(going, [completion for [completion] in found])

    def _take(self, episodes: Sequence[Episode], found: Sequence[Completion]) -> None:
        """Append what the policy has just written, up to the end of a call or of the room that there is."""
        for episode, written in zip(episodes, found, strict=True):
            count = min(len(written), episode.room)
            stopped = written.finish_reason == "stop" and count == len(written)
            new = [*episode.ids[episode.turn_start :], *written.ids[:count].tolist()]
            ends_here = not self.form.ends_turn or stopped
            call = self._call(episode, new) if ends_here else None
            if call is not None and not self.form.ends_turn:
                found_at = episode.turn_start + _tokens_until(self._pieces(new), call.end)
                count, stopped = max(0, found_at - len(episode.ids)), False
            episode.write(written, count)
            episode.call, episode.stopped = call, stopped
            at_end = episode.room <= 0 or (stopped and call is None)
            episode.is_over = at_end and call is None

    def _call(self, episode: Episode, new: list[int]) -> FoundCall | None:
        """The call that this turn makes; only noted, once the turns are used up."""
        if any(turn.outcome == UNANSWERED for turn in episode.turns):
            return None
        return self.form.find("".join(self._pieces(new)))

    def _answer(self, episodes: Sequence[Episode]) -> None:
        calls = [(episode, given(episode.call)) for episode in episodes]
        asked = [each for each in calls if each[0].answered < self.config.max_turns and each[0].room > 0]
        jobs = [(call.call, episode.prompt) for episode, call in asked]
        answers = dict(zip([id(each[0]) for each in asked], self.toolbox.answer(jobs), strict=True))
        for episode, call in calls:
            self._take_answer(episode, call, answers.get(id(episode)))
            episode.call = None

    def _take_answer(self, episode: Episode, call: FoundCall, answer: ToolAnswer | None) -> None:
        """Append the answer whole, or none where no token would be left to go on with."""
        pieces = self._pieces(episode.ids[episode.turn_start :])
        first, end = (episode.turn_start + at for at in _span(pieces, call))
        here = len(episode.ids)
        turn = Turn(call.call.tool or "?", UNANSWERED, 0.0, (first, end), (here, here))
        if answer is None:
            episode.turns.append(turn)
            episode.is_over = self.form.ends_turn or episode.room <= 0
            return
        before, after = map(self.encoder.frame, self.form.frame(call.call))
        told = self.encoder.answer(answer.text, most=self.config.max_observation_tokens)
        observation = [*before, *told.ids, *after]
        if len(observation) >= episode.room:
            episode.turns.append(turn._replace(seconds=answer.seconds))
            episode.is_over, episode.stopped = True, False
            return
        episode.observe(observation)
        told_turn = Turn(
            turn.tool, answer.outcome, answer.seconds, turn.call, (here, len(episode.ids)), told.is_cut
        )
        episode.turns.append(told_turn)

    def _completion(self, episode: Episode) -> Completion:
        pieces = self._pieces(episode.ids)
        is_plain = all(episode.generated)
        return Completion(
            ids=np.array(episode.ids, np.int64),
            text="".join(pieces[:-1] if episode.stopped else pieces),
            token_strings=pieces,
            finish_reason="stop" if episode.stopped else "length",
            sampler_logprobs=np.concatenate(episode.logprobs),
            entropies=np.concatenate(episode.entropies),
            prompt_tokens=len(episode.prompt_ids),
            version=episode.version,
            generated=None if is_plain else np.array(episode.generated),
            turns=tuple(episode.turns),
        )

    def _pieces(self, ids: list[int]) -> tuple[str, ...]:
        return self.policy.token_texts.pieces(ids)


def episodes_of(environment: Environment, policy: Policy) -> Episodes | None:
    """The episodes of a run; None where a completion is one turn."""
    return None if isinstance(environment, NoEnvironment) else Episodes(environment, policy)


def draw(
    samples: Samples,
    episodes: Episodes | None,
    prompts: Sequence[Prompt],
    group_size: int,
    sampling: SamplingLike,
    generator: torch.Generator,
) -> list[list[Completion]]:
    """`group_size` completions of every prompt, in turns where there are `episodes`."""
    if episodes is None:
        return samples.sample(prompts, group_size, sampling, generator)
    return episodes.sample(samples, prompts, group_size, sampling, generator)


def given(call: FoundCall | None) -> FoundCall:
    """The call of an episode that waits for an answer."""
    if call is None:
        raise ValueError("an episode without a call waits for no answer")
    return call


def _decoding(sampling: SamplingLike, tokens: int) -> Decoding:
    return Decoding(tokens, sampling.temperature, sampling.top_p, sampling.top_k)


def _round(seed: int, number: int) -> torch.Generator:
    """The random numbers of a round."""
    digest = sha256(f"{seed}/round/{number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7]))


def _tokens_until(pieces: Sequence[str], end: int) -> int:
    """How many tokens hold the first `end` characters."""
    total = 0
    for count, piece in enumerate(pieces, start=1):
        total += len(piece)
        if total >= end:
            return count
    return len(pieces)


def _span(pieces: Sequence[str], call: FoundCall) -> tuple[int, int]:
    """First token of a call, and the one behind it."""
    return max(0, _tokens_until(pieces, call.start + 1) - 1), _tokens_until(pieces, call.end)


def _ids_with(policy: Policy, marks: Sequence[str]) -> list[int]:
    """The token ids whose text holds one of the marks, all of them ASCII."""
    vocabulary: dict[str, int] = policy.tokenizer.get_vocab()
    return sorted(index for token, index in vocabulary.items() if any(mark in token for mark in marks))
