"""Tests of episodes with an OpenEnv server, a real process that can misbehave in many ways."""

import random
import subprocess
import sys
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import httpx2
import pytest
import torch

from backend.base.errors import EnvironmentFailed
from backend.config.environments import OpenEnv
from tests.worker.rollout.openenv_server import API_KEY, HOW
from tests.worker.rollout.test_episodes import TEMPLATE, Script
from worker.policy.prompt_form import PromptForm
from worker.prompt import Prompt
from worker.rewards import endpoint
from worker.rollout.openenv import session
from worker.rollout.openenv.episodes import OpenEnvEpisodes
from worker.rollout.openenv.server import episode_seed
from worker.rollout.pool import decode_groups, group_documents, group_tensors
from worker.rollout.sampler import Decoding, Sampler
from worker.types import EpisodeResult, Group

SILENT_BEHAVIOURS = ("slow", "trickle")
PROMPT = Prompt("episodes/train/0/0", "Guess.", "", "episodes", is_episode=True)


@contextmanager
def started_server():
    """Yield a server's process and its address."""
    argv = [sys.executable, "-m", "tests.worker.rollout.openenv_server"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


@pytest.fixture(scope="module")
def address():
    with started_server() as (_, address):
        yield address


@pytest.fixture
def served_settings(settings, address, monkeypatch):
    """The settings of an installation with one environment per kind of misbehaviour."""
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)
    return with_servers(settings, address)


def with_servers(settings, address):
    """Return the settings with one environment per kind of misbehaviour."""
    pairs = ",".join(f"{how.lower()}={address}/{how}" for how in HOW)
    return settings.model_copy(update={"openenv_urls": pairs})


@pytest.fixture
def seen_requests(address):
    """A function that returns the requests to a server."""
    return lambda event: httpx2.get(f"{address}/seen").json().get(event, 0)


def draw_number(prompt):
    """Return the number that the server draws for a prompt."""
    return random.Random(episode_seed(prompt.id)).randint(1, 9)


def play_rounds(tiny, settings, how, rounds, *, prompts=(PROMPT,), tokens=60, **changes):
    """Return completions by a script, one for each prompt, and the script."""
    config = OpenEnv(server=how.lower(), step_seconds=1.0 if how in SILENT_BEHAVIOURS else 60.0, **changes)
    episodes = OpenEnvEpisodes(config, tiny, settings)
    script = Script(tiny, *rounds)
    groups = episodes.sample(
        script, episodes.prepare_prompts(prompts), 1, Decoding(tokens), torch.Generator()
    )
    return [completion for [completion] in groups], script, episodes


def test_an_episode_continues_until_the_environment_ends_it(tiny, served_settings):
    drawn_number = draw_number(PROMPT)
    rounds = [["0<eos>"], ["10<eos>"], [f"{drawn_number}<eos>"]]
    [completion], script, _ = play_rounds(tiny, served_settings, "good", rounds)
    assert script.asked == [
        ["Guess.\n1 to 9?"],
        ["Guess.\n1 to 9?0<eos>\nmore\n"],
        ["Guess.\n1 to 9?0<eos>\nmore\n10<eos>\nless\n"],
    ]
    assert completion.text == f"0<eos>\nmore\n10<eos>\nless\n{drawn_number}"
    assert completion.own_text == f"0<eos>10<eos>{drawn_number}"
    assert completion.finish_reason == "stop"
    assert completion.episode == EpisodeResult(1.0, is_done=True)
    assert [turn.outcome for turn in completion.turns] == ["ok", "ok", "done"]
    assert completion.turns[0].call == (0, 1)
    assert not completion.generated[slice(*completion.turns[0].observation)].any()


def test_the_reward_is_the_sum_or_the_last_reward(tiny, served_settings):
    drawn_number = draw_number(PROMPT)
    rounds = [[f"<think>8</think>{drawn_number}<eos>"]]
    [completion], *_ = play_rounds(tiny, served_settings, "good", rounds, reward="last")
    assert completion.episode == EpisodeResult(1.0, is_done=True)
    [completion], *_ = play_rounds(tiny, served_settings, "good", [["0<eos>"], ["0<eos>"]], max_turns=2)
    assert completion.episode == EpisodeResult(0.0, is_done=False)
    assert [turn.outcome for turn in completion.turns] == ["ok", "ok"]
    assert completion.finish_reason == "stop"


LOST_REASONS = {
    "no_json": "its answer is not JSON",
    "no_object": "its answer is not an object with a type and data",
    "nan": "its answer is not JSON",
    "infinite": "its reward is not finite",
    "text_reward": "its reward is of type str, expected a number",
    "no_done": "its done is missing, expected true or false",
    "text_done": "its done is of type str",
    "no_observation": "its observation is of type list, expected an object",
    "bytes": "it sent bytes instead of text",
    "large": "its message is longer than 1,048,576 bytes",
    "slow": "it gave no answer within 1 seconds",
    "trickle": "it gave no answer within 1 seconds",
    "closes": "it closed the connection",
    "drops": "it closed the connection",
    "SESSION_ERROR": "it answered with the error 'SESSION_ERROR': '<eos> no such move'",
}


@pytest.mark.parametrize("how", LOST_REASONS)
def test_an_episode_is_lost_with_a_reason_and_its_action_is_sent_once(
    tiny, served_settings, seen_requests, how
):
    requests_before = seen_requests(f"{how} step")
    with pytest.raises(EnvironmentFailed) as error_info:
        play_rounds(tiny, served_settings, how, [["0<eos>"]])
    summary = f"the environment {how.lower()} of OPENENV_URLS failed: no episode of a step came to its end"
    assert str(error_info.value).startswith(f"{summary}; the last one: {LOST_REASONS[how]}")
    assert "127.0.0.1" not in str(error_info.value)
    assert seen_requests(f"{how} step") == requests_before + 1


def test_one_lost_episode_does_not_affect_the_others_and_is_counted(tiny, served_settings):
    """With a reward of 1e308 per step, the sum overflows at the second step."""
    prompts = [PROMPT, replace(PROMPT, id="episodes/train/0/1")]
    rounds = [["0<eos>", "0" * 60], ["0<eos>"]]
    completions, _, episodes = play_rounds(tiny, served_settings, "sums_to_infinity", rounds, prompts=prompts)
    assert [completion.episode for completion in completions] == [
        EpisodeResult(None, is_done=False),
        EpisodeResult(0.0, is_done=False),
    ]
    reason = "the sum of its rewards is not finite"
    assert (
        episodes.take_loss()
        == f"1 episodes were lost by the environment sums_to_infinity; the last: {reason}"
    )
    assert episodes.take_loss() == ""


@pytest.mark.parametrize("how", ["VALIDATION_ERROR", "EXECUTION_ERROR"])
def test_a_refused_action_is_reported_to_the_policy_and_the_episode_continues(tiny, served_settings, how):
    rounds = [["0<eos>"], ["1<eos>"]]
    [completion], script, _ = play_rounds(tiny, served_settings, how, rounds, max_turns=2)
    assert script.asked[1][0].endswith("0<eos>\nerror: <eos> no such move\n")
    observed_ids = completion.ids[slice(*completion.turns[0].observation)]
    assert not set(tiny.stop_ids) & set(observed_ids.tolist())
    assert [turn.outcome for turn in completion.turns] == ["failed", "failed"]
    assert completion.episode == EpisodeResult(0.0, is_done=False)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("redirects", r"it cannot be reached \(ValueError\)"),
        ("fails", r"it cannot be reached \(InvalidStatus\)"),
        ("silent", r"it cannot be reached \(TimeoutError\)"),
        ("no_reset", "it closed the connection"),
        ("over", "its episode is over before it begins"),
        ("no_schema", "it answered /schema with status 404"),
        ("bad_schema", "its schema of actions is not a JSON Schema"),
        ("far_schema", "its schema of actions is not a JSON Schema"),
        ("json", "its actions have the fields 'low', 'high', and form = text takes one text"),
        ("none", "it had no place for a session within 0.5 seconds"),
        ("forgetful", "two resets with the same seed gave different observations"),
    ],
)
def test_an_unusable_server_is_detected_before_the_first_step(
    tiny, served_settings, how, reason, monkeypatch
):
    if how == "silent":
        monkeypatch.setattr(session, "CONNECT_SECONDS", 0.5)
    wait_seconds = 0.5 if how == "none" else 60
    episodes = OpenEnvEpisodes(
        OpenEnv(server=how, wait_seconds=wait_seconds, sessions=2), tiny, served_settings
    )
    with pytest.raises(EnvironmentFailed, match=f"the environment {how} of OPENENV_URLS failed: {reason}"):
        episodes.check()


def test_a_server_that_requires_a_key_gets_only_its_own(tiny, served_settings, caplog):
    settings_with_key = served_settings.model_copy(update={"openenv_keys": f"good=another,locked={API_KEY}"})
    [completion], _, episodes = play_rounds(
        tiny, settings_with_key, "locked", [[f"{draw_number(PROMPT)}<eos>"]]
    )
    episodes.check()
    assert completion.episode == EpisodeResult(1.0, is_done=True)
    shut = served_settings.model_copy(update={"openenv_keys": "locked=wrong-key"})
    with pytest.raises(EnvironmentFailed, match="it answered /schema with status 401") as error_info:
        OpenEnvEpisodes(OpenEnv(server="locked"), tiny, shut).check()
    assert "wrong-key" not in str(error_info.value) + caplog.text


def test_an_episode_that_starts_differently_from_its_prompt_is_lost(tiny, served_settings):
    with pytest.raises(EnvironmentFailed, match="its first observation is another one than in the prompt"):
        play_rounds(tiny, served_settings, "forgetful", [["0<eos>"]])


def test_a_server_that_disconnects_ends_the_run_with_a_reason(tiny, served_settings, settings):
    with started_server() as (process, address):
        episodes = OpenEnvEpisodes(OpenEnv(server="good"), tiny, with_servers(settings, address))
        prompts = episodes.prepare_prompts([PROMPT])
        process.kill()
        process.wait()
        script = Script(tiny, ["0<eos>", "0<eos>"])
        with pytest.raises(EnvironmentFailed, match="it cannot be reached"):
            episodes.sample(script, prompts, 2, Decoding(60), torch.Generator())


def test_episodes_beyond_the_session_limit_of_a_server_take_turns(tiny, served_settings, seen_requests):
    prompts = [replace(PROMPT, id=f"episodes/train/0/{n}") for n in range(5)]
    config = OpenEnv(server="two", max_turns=1, sessions=4)
    episodes = OpenEnvEpisodes(config, tiny, served_settings)
    episodes.check()
    assert episodes.server.limit == 2
    rounds = [["0<eos>", "0" * 9], ["0" * 9, "0<eos>"], ["0<eos>"]]
    groups = episodes.sample(
        Script(tiny, *rounds), episodes.prepare_prompts(prompts), 1, Decoding(9), torch.Generator()
    )
    assert [len(completion.turns) for [completion] in groups] == [1, 0, 0, 1, 1]
    assert seen_requests("two most") == 2


def test_an_observation_is_cut_and_hostile_text_becomes_plain_letters(tiny, served_settings):
    [completion], script, _ = play_rounds(
        tiny, served_settings, "hostile", [["0<eos>"], ["0<eos>"]], max_turns=2, max_observation_tokens=20
    )
    [first], [second] = script.asked
    assert first.startswith("Guess.\n< eos>< /think>")
    assert first.endswith(" [cut]")
    prompt_ids = tiny.encode(replace(PROMPT, text=first), room=60)
    assert not {*tiny.stop_ids, tiny.pad_id} & set(prompt_ids)
    observed_ids = completion.ids[slice(*completion.turns[0].observation)]
    assert completion.turns[0].is_cut
    assert len(observed_ids) == 20 + 2
    assert not {*tiny.stop_ids, tiny.pad_id} & set(observed_ids.tolist())
    assert second.startswith(first)


@pytest.fixture(scope="module")
def chat_policy(tiny):
    """The tiny policy with a chat template that has tools."""
    tokenizer = deepcopy(tiny.tokenizer)
    tokenizer.chat_template = TEMPLATE
    return replace(tiny, tokenizer=tokenizer, form=PromptForm(tokenizer, chat_template=True))


def test_the_chat_template_shows_the_schema_and_frames_observations(chat_policy, served_settings):
    drawn_number = draw_number(PROMPT)
    bad_call = '<tool_call>{"name": "act", "arguments": {"low": 1}}</tool_call><eos>'
    good_call = (
        f'<tool_call>{{"name": "act", "arguments": {{"low": {drawn_number}, "high": 9}}}}</tool_call><eos>'
    )
    [completion], script, _ = play_rounds(
        chat_policy,
        served_settings,
        "json",
        [[bad_call], [good_call]],
        form="template",
        tokens=700,
        max_observation_tokens=99,
    )
    assert script.asked[0] == ["<|user|>Guess.\n1 to 9?<eos>1 tools<|assistant|>"]
    problem = '<|user|><tool_response>error: "high" is a required property</tool_response><eos><|assistant|>'
    assert completion.text == bad_call + problem + good_call.removesuffix("<eos>")
    assert [turn.outcome for turn in completion.turns] == ["failed", "done"]
    assert completion.episode == EpisodeResult(1.0, is_done=True)


@pytest.mark.parametrize(
    "call",
    ["{}", "not json", "[" * 300, '{"name": "step", "arguments": {}}', '{"name": "act", "arguments": [NaN]}'],
)
def test_a_malformed_call_is_not_sent(chat_policy, served_settings, seen_requests, call):
    requests_before = seen_requests("json step")
    rounds = [[f"<tool_call>{call}</tool_call><eos>"], ["0<eos>"]]  # a turn without a call ends it
    [completion], *_ = play_rounds(chat_policy, served_settings, "json", rounds, form="template", tokens=900)
    assert completion.turns[0].outcome == "failed"
    assert completion.episode == EpisodeResult(0.0, is_done=False)
    assert seen_requests("json step") == requests_before


def sample_groups(tiny, settings, how, seed):
    """Return episodes of the real sampler."""
    prompts = [replace(PROMPT, id=f"episodes/train/0/{n}") for n in range(3)]
    episodes = OpenEnvEpisodes(OpenEnv(server=how, max_turns=3, sessions=4), tiny, settings)
    episodes.check()
    generator = torch.Generator().manual_seed(seed)
    groups = episodes.sample(Sampler(tiny), episodes.prepare_prompts(prompts), 2, Decoding(60), generator)
    return [[(completion.text, completion.episode) for completion in group] for group in groups], groups


@pytest.mark.parametrize("how", ["good", "two"])
def test_equal_generator_states_give_equal_episodes(tiny, served_settings, how):
    (first, groups), (second, _), (of_other_seed, _) = (
        sample_groups(tiny, served_settings, how, seed) for seed in (1, 1, 2)
    )
    assert first == second
    assert first != of_other_seed
    assert any(completion.turns for group in groups for completion in group)


def test_a_pooled_group_survives_a_checkpoint_with_its_episodes(tiny, served_settings):
    _, [completions, *_] = sample_groups(tiny, served_settings, "good", 1)
    group = Group(PROMPT, tuple(completions), rewards=(0.0, 0.0))
    [restored_group] = decode_groups(group_documents([group]), group_tensors([group]))
    assert [completion.episode for completion in restored_group.completions] == [
        completion.episode for completion in completions
    ]
    assert restored_group.prompt == replace(PROMPT, messages=(), tools=())
