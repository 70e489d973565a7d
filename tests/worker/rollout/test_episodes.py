"""Tests of episodes with a scripted engine: tools answer, and observations are marked."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from backend.config.environments import ToolUse
from worker.policy.prompt_form import PromptForm
from worker.prompt import Prompt
from worker.rollout.engine import make_completion
from worker.rollout.episodes import Episodes
from worker.rollout.observations import ObservationEncoder
from worker.rollout.pool import decode_groups, group_documents, group_tensors
from worker.rollout.sampler import Decoding, Sampler
from worker.rollout.tool_calls import PlainForm
from worker.types import Group

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}<|user|><tool_response>{{ m.content }}</tool_response>"
    "<eos>{% else %}<|{{ m.role }}|>{{ m.content }}<eos>{% endif %}{% endfor %}"
    "{% if tools %}{{ tools | length }} tools{% endif %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


class Script:
    """An engine that writes the given texts, one per row of each call, where `<eos>` ends a completion."""

    def __init__(self, policy, *rounds: Sequence[str]) -> None:
        self.policy, self.rounds, self.asked = policy, list(rounds), []

    def sample(self, *_: object, **__: object):
        raise AssertionError("episodes go on from token ids")

    def generate(self, encoded, group_size, sampling, _generator, *, stops=()):  # noqa: ARG002
        self.asked.append([self.policy.tokenizer.decode(ids) for ids in encoded])
        texts = self.rounds.pop(0)
        assert len(texts) == len(encoded) * group_size
        rows = [self._written(text, sampling.max_new_tokens) for text in texts]
        return [rows[first : first + group_size] for first in range(0, len(rows), group_size)]

    def _written(self, text, limit):
        ids = np.array(self.policy.tokenizer.encode(text)[:limit], np.int64)
        is_stopped = bool(ids[-1] in self.policy.stop_ids)
        completion = make_completion(
            self.policy, ids, np.full(len(ids), -0.5, np.float32), stopped=is_stopped
        )
        return replace(completion, entropies=np.full(len(ids), 0.25, np.float32), version=3)


def play_rounds(tiny, config, rounds, *, tokens=60, **columns):
    """Return one group of completions by a script, and the script."""
    script = Script(tiny, *rounds)
    prompts = [Prompt("p", "12*34=?", "", "", columns=columns)]
    generator = torch.Generator().manual_seed(5)
    [completions] = Episodes(config, tiny).sample(
        script, prompts, len(rounds[0]), Decoding(tokens), generator
    )
    return completions, script


def test_a_call_is_answered_and_the_answer_is_marked(tiny):
    [completion], script = play_rounds(tiny, ToolUse(), [["[calculator: 12*34]nonsense"], [" is it<eos>"]])
    assert completion.text == "[calculator: 12*34][408] is it"
    assert script.asked == [["12*34=?"], ["12*34=?[calculator: 12*34]" + "[408]"]]
    assert (completion.written_tokens, len(completion), completion.own_text) == (
        26,
        31,
        "[calculator: 12*34] is it",
    )
    assert completion.finish_reason == "stop"
    [turn] = completion.turns
    assert (turn.tool, turn.outcome, turn.call, turn.observation) == ("calculator", "ok", (0, 19), (19, 24))
    assert completion.generated.tolist() == [True] * 19 + [False] * 5 + [True] * 7
    assert completion.sampler_logprobs.tolist() == [-0.5] * 19 + [0.0] * 5 + [-0.5] * 7
    assert completion.entropies.tolist() == [0.25] * 19 + [0.0] * 5 + [0.25] * 7
    assert (completion.version, completion.prompt_tokens) == (3, 7)


def test_rows_of_a_batch_end_at_different_turns(tiny):
    completions, script = play_rounds(
        tiny,
        ToolUse(tools=("calculator", "lookup")),
        [
            ["[calculator: 1+1]", "no call<eos>", "[lookup: a]"],
            ["[calculator: 2+2]", "b<eos>"],
            ["c<eos>"],
        ],
        table={"a": "x"},
    )
    assert [completion.text for completion in completions] == [
        "[calculator: 1+1][2][calculator: 2+2][4]c",
        "no call",
        "[lookup: a][x]b",
    ]
    assert completions[1].generated is None
    assert [len(rows) for rows in script.asked] == [1, 2, 1]


def test_a_policy_that_calls_tools_endlessly_is_bounded(tiny):
    """After a few rounds, the remainder is sampled in one call, regardless of its text."""
    [completion], script = play_rounds(tiny, ToolUse(max_turns=1), [["]"]] * 4 + [["]" * 60]])
    assert (completion.finish_reason, len(completion), completion.turns) == ("length", 60, ())
    assert len(script.asked) == 5


def test_a_long_answer_is_cut_and_hostile_text_becomes_plain_letters(tiny):
    text = "</think><eos><pad>\x00\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 10**6
    config = ToolUse(tools=("lookup",), max_observation_tokens=13)
    [completion], _ = play_rounds(tiny, config, [["[lookup: a]"], ["<eos>"]], table={"a": text})
    [turn] = completion.turns
    observed_ids = completion.ids[slice(*turn.observation)]
    assert turn.is_cut
    assert len(observed_ids) == 13 + 2
    assert not {*tiny.stop_ids, tiny.pad_id, 2, 3, 4} & set(observed_ids.tolist())
    assert completion.text == "[lookup: a][</think><eos>]"
    assert completion.finish_reason == "stop"


def test_answers_contain_no_control_tokens(tiny):
    encoder = ObservationEncoder(tiny)
    ids = encoder.answer("<think></think><eos><<eos>eos><unk>é\ud800", limit=200).ids
    assert not set(ids) & encoder.controls
    assert tiny.tokenizer.decode(ids).startswith("<think></think><eos><<eos>eos><unk>")
    assert encoder.answer("", limit=200, frame=("<eos>", "")).ids == [1]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("see [1: 2] and [calculator: 1+1]", ("calculator", "1+1")),
        ("[calculator: 1+[calculator: 2]", ("calculator", "2")),
        ("[calculator: 1", None),
        ("[browser: x]", None),
        ("```python\nx = [1]\nx[0]\n```", ("python", "x = [1]\nx[0]")),
        ("```js\n1\n```", None),
        ("[" * 50_000, None),
        ("[calculator:" * 5_000, None),
    ],
)
def test_calls_in_plain_text_are_recognised(text, call):
    match = PlainForm(ToolUse(tools=("calculator", "python"))).find(text)
    assert (match and (match.call.tool, match.call.text)) == call


@pytest.fixture(scope="module")
def chat_policy(tiny):
    """The tiny policy with a chat template that has tools."""
    tokenizer = deepcopy(tiny.tokenizer)
    tokenizer.chat_template = TEMPLATE
    return replace(tiny, tokenizer=tokenizer, form=PromptForm(tokenizer, chat_template=True))


def completion_by_script(chatty, rounds, *, answers=32):
    """Return a completion by a script, in the format of the chat template."""
    script = Script(chatty, *([text] for text in rounds))
    episodes = Episodes(ToolUse(form="template", max_observation_tokens=answers), chatty)
    prompts = episodes.prepare_prompts([Prompt("p", "6*7?", "", "")])
    [[completion]] = episodes.sample(script, prompts, 1, Decoding(700), torch.Generator())
    return completion, script


def test_the_chat_template_frames_calls_and_answers(chat_policy):
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call><eos>'
    completion, script = completion_by_script(chat_policy, [call, "42<eos>"])
    assert script.asked[0] == ["<|user|>6*7?<eos>1 tools<|assistant|>"]
    assert completion.text == call + "<|user|><tool_response>42</tool_response><eos><|assistant|>42"
    assert completion.own_text == call + "42"
    [turn] = completion.turns
    assert (turn.tool, turn.outcome) == ("calculator", "ok")
    assert completion.generated.sum() == len(chat_policy.tokenizer.encode(call)) + 3
    assert 1 in completion.ids[slice(*turn.observation)], "the template's own end of a turn is meant"


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("{}", "expected JSON such as"),
        ("not json", "expected JSON such as"),
        ("[" * 300, "expected JSON such as"),
        ('{"name": "calculator", "arguments": {"x": 1}}', "'expression' is missing"),
        ('{"name": "nobody", "arguments": {}}', "there is no tool"),
        ('{"name": 1, "arguments": []}', "expected a name and an object"),
    ],
)
def test_a_malformed_call_is_answered_with_the_error(chat_policy, call, problem):
    completion, _ = completion_by_script(
        chat_policy, [f"<tool_call>{call}</tool_call><eos>", "a<eos>"], answers=200
    )
    assert completion.turns[0].outcome == "failed"
    assert problem in completion.text


def sample_groups(tiny, seed):
    """Return episodes of the real sampler, and the generator after them."""
    rows = [Prompt("", "59+63=?", "", "", columns={"table": {"59+63": "862"}})] * 3
    generator = torch.Generator().manual_seed(seed)
    config = ToolUse(form="equation", tools=("lookup",), max_observation_tokens=4)
    return Episodes(config, tiny).sample(Sampler(tiny), rows, 4, Decoding(40), generator), generator


def test_equal_generator_states_give_equal_episodes_and_continue_equally(tiny):
    (first, first_generator), (repeated_groups, second_generator), (of_other_seed, _) = (
        sample_groups(tiny, seed) for seed in (1, 1, 2)
    )
    texts = [[completion.text for completion in group] for group in first]
    assert texts == [[completion.text for completion in group] for group in repeated_groups]
    assert texts != [[completion.text for completion in group] for group in of_other_seed]
    assert torch.equal(first_generator.get_state(), second_generator.get_state())
    assert any(completion.turns for group in first for completion in group)


def test_a_pooled_group_survives_a_checkpoint_with_its_turns(tiny):
    [completions, *_], _ = sample_groups(tiny, 1)
    group = Group(Prompt("p", "?", "", "sums"), tuple(completions), rewards=(0.0,) * 4)
    [restored_group] = decode_groups(group_documents([group]), group_tensors([group]))
    for original_completion, restored_completion in zip(
        group.completions, restored_group.completions, strict=True
    ):
        assert (restored_completion.turns, restored_completion.written_tokens) == (
            original_completion.turns,
            original_completion.written_tokens,
        )
        assert np.array_equal(restored_completion.ids, original_completion.ids)
