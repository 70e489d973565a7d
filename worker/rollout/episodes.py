"""Episodes: completions sampled in turns, with tool answers between them.

    round 0    sample all completions until each ends or has written a call
    tools      answer the calls; the answers are appended as observations
    round n    continue unfinished completions until none are left

The random numbers of a round depend on one number of the caller's generator, so a resumed run repeats its
episodes if its tools give the same answers again.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import torch

from backend.base.settings import Settings
from backend.config.environments import NoEnvironment, OpenEnv, ToolUse
from backend.config.run import RunConfig
from worker.policy.model import Policy
from worker.prompt import Prompt
from worker.rollout.engine import Samples, SamplingLike, encoded_prompts
from worker.rollout.openenv.episodes import OpenEnvEpisodes
from worker.rollout.tool_calls import ParsedCall, call_form
from worker.rollout.tools import Toolbox, ToolResult, tool_schema
from worker.rollout.turns import Episode, TakesTurns, TurnTaking, require_call, round_generator, turn_decoding
from worker.types import Completion


class Episodes(TurnTaking):
    """Samples completions in turns with another sampler, and calls tools between the turns."""

    def __init__(self, config: ToolUse, policy: Policy) -> None:
        """Create the episodes. Raise InvalidConfig if the policy's chat template has no tool turn."""
        super().__init__(
            policy,
            call_form(config, policy),
            max_turns=config.max_turns,
            max_observation_tokens=config.max_observation_tokens,
        )
        self.config, self.toolbox = config, Toolbox(config)

    def check(self) -> None:
        """See TakesTurns."""
        self.toolbox.check()

    def close(self) -> None:
        """See TakesTurns."""
        self.toolbox.close()

    def take_loss(self) -> str:
        """See TakesTurns. Nothing is lost, because a failed tool returns its failure as the answer."""
        return ""

    def prepare_prompts(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompts with the tools that a chat template shows."""
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
        """Sample `group_size` completions of every prompt, in the order of the prompts."""
        prompt_ids = encoded_prompts(self.policy, prompts, sampling)
        seed = int(torch.randint(2**62, (), generator=generator))
        episodes = [
            Episode(prompt, ids, sampling.max_new_tokens)
            for prompt, ids in zip(prompts, prompt_ids, strict=True)
            for _ in range(group_size)
        ]
        groups = samples.generate(
            prompt_ids,
            group_size,
            turn_decoding(sampling, sampling.max_new_tokens),
            round_generator(seed, 0),
            stops=self.stops,
        )
        self._take(episodes, [completion for group in groups for completion in group])
        number = 1
        while unfinished_episodes := [episode for episode in episodes if not episode.is_over]:
            self._answer([episode for episode in unfinished_episodes if episode.call is not None])
            self._go_on(
                samples,
                [episode for episode in unfinished_episodes if not episode.is_over],
                sampling,
                seed,
                number,
            )
            number += 1
        completions = [self._completion(episode) for episode in episodes]
        return [completions[first : first + group_size] for first in range(0, len(completions), group_size)]

    def _answer(self, episodes: Sequence[Episode]) -> None:
        calls = [(episode, require_call(episode.call)) for episode in episodes]
        answerable_pairs = [
            pair for pair in calls if pair[0].answered_calls < self.config.max_turns and pair[0].room > 0
        ]
        jobs = [(call.call, episode.prompt) for episode, call in answerable_pairs]
        answers = dict(
            zip([id(pair[0]) for pair in answerable_pairs], self.toolbox.answer(jobs), strict=True)
        )
        for episode, call in calls:
            self._take_answer(episode, call, answers.get(id(episode)))
            episode.call = None

    def _take_answer(self, episode: Episode, call: ParsedCall, answer: ToolResult | None) -> None:
        """Append the complete answer, or nothing if no tokens would remain to continue."""
        turn = self._make_turn(episode, call)
        if answer is None:
            episode.turns.append(turn)
            episode.is_over = self.form.ends_turn or episode.room <= 0
        elif not self._observe(episode, call, turn, answer):
            episode.turns.append(turn._replace(seconds=answer.seconds))
            episode.is_over, episode.stopped = True, False


def make_episodes(config: RunConfig, policy: Policy, settings: Settings) -> TakesTurns | None:
    """Return the episodes of a run, or None if a completion is a single turn."""
    match config.environment:
        case NoEnvironment():
            return None
        case ToolUse():
            return Episodes(config.environment, policy)
        case OpenEnv():
            return OpenEnvEpisodes(config.environment, policy, settings)
        case _:
            assert_never(config.environment)


def draw(
    samples: Samples,
    episodes: TakesTurns | None,
    prompts: Sequence[Prompt],
    group_size: int,
    sampling: SamplingLike,
    generator: torch.Generator,
) -> list[list[Completion]]:
    """Sample `group_size` completions of every prompt, in turns if there are `episodes`."""
    if episodes is None:
        return samples.sample(prompts, group_size, sampling, generator)
    return episodes.sample(samples, prompts, group_size, sampling, generator)
