import numpy as np
import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from backend.base.errors import InvalidConfig
from worker.policy.lean import MIN_PACKED, LeanModel, is_lean
from worker.policy.model import as_policy
from worker.problems.sums import Sums
from worker.prompt import Prompt
from worker.rollout import sampler as sampler_module
from worker.rollout.decoders import GenericDecoder
from worker.rollout.lean_decoder import LeanDecoder
from worker.rollout.row_limit import RowLimit
from worker.rollout.sampler import Cadence, Decoding, Sampler, inverse_cdf, next_token_logprobs
from worker.rollout.sharing import UnfinishedRows

FLOAT32_TOLERANCE = 1e-4
"""Maximum change of a log-probability when float32 sums are computed in another order."""

SIZES = {
    "vocab_size": 101,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.5,
}


def random_policy(tiny, kind):
    torch.manual_seed(0)
    model = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)),
        "llama3 rope": lambda: LlamaForCausalLM(
            LlamaConfig(
                **SIZES,
                rope_parameters={
                    "rope_type": "llama3",
                    "rope_theta": 10000.0,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 16,
                },
            )
        ),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)),
        "gpt2": lambda: GPT2LMHeadModel(
            GPT2Config(vocab_size=101, n_positions=128, n_embd=32, n_layer=2, n_head=4)
        ),
    }[kind]()
    model.generation_config.eos_token_id = tiny.tokenizer.eos_token_id
    return as_policy(model.eval(), tiny.tokenizer, name=kind, chat_template=False)


def prompts(*texts):
    return [Prompt(id=text, text=text, answer="", problem="sums") for text in texts]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def flatten(groups):
    return [completion for group in groups for completion in group]


def test_greedy_decoding_matches_generate(tiny):
    batch = tiny.tokenizer([prompt.text for prompt in UNEVEN_PROMPTS], return_tensors="pt", padding=True)
    expected = tiny.model.generate(
        batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=40, do_sample=False
    )[:, batch["input_ids"].shape[1] :]
    groups = Sampler(tiny).sample(UNEVEN_PROMPTS, 1, Decoding(40, temperature=0), generator())
    for row, [completion] in zip(expected, groups, strict=True):
        assert completion.ids.tolist() == row[: len(completion)].tolist()
        assert (row[len(completion) :] == tiny.pad_id).all()


UNEVEN_PROMPTS = prompts("85+60+88=?", "1+2=?", "10+20+30+40=?")


@pytest.mark.parametrize("fewest_packed", [0, MIN_PACKED])
@pytest.mark.parametrize("kind", ["tiny", "llama", "llama3 rope", "qwen2"])
def test_the_lean_path_computes_the_same_as_the_model(tiny, kind, fewest_packed, monkeypatch):
    monkeypatch.setattr("worker.policy.lean.MIN_PACKED", fewest_packed)
    policy = tiny if kind == "tiny" else random_policy(tiny, kind)
    assert is_lean(policy.model)
    view = LeanModel(policy.model, prepacks=True)
    for projection in (view.scores, view.layers[0].qkv, view.layers[0].down):
        assert (projection.packed is None) == (fewest_packed > 0)
    lean = Sampler(policy).sample(UNEVEN_PROMPTS, 5, Decoding(30), generator())
    monkeypatch.setattr(sampler_module, "decoder_for", GenericDecoder)
    generic = Sampler(policy).sample(UNEVEN_PROMPTS, 5, Decoding(30), generator())
    for lean_completion, generic_completion in zip(flatten(lean), flatten(generic), strict=True):
        assert lean_completion.ids.tolist() == generic_completion.ids.tolist()
        np.testing.assert_allclose(
            lean_completion.sampler_logprobs, generic_completion.sampler_logprobs, atol=FLOAT32_TOLERANCE
        )
        np.testing.assert_allclose(
            lean_completion.entropies, generic_completion.entropies, atol=FLOAT32_TOLERANCE
        )


@pytest.mark.parametrize("kind", ["tiny", "gpt2"])
@pytest.mark.parametrize(
    "decoding", [Decoding(30), Decoding(30, temperature=0.7), Decoding(30, 1.3, 0.9, 20)]
)
def test_recorded_log_probabilities_match_a_fresh_forward_pass(tiny, kind, decoding):
    policy = tiny if kind == "tiny" else random_policy(tiny, kind)
    for group, prompt in zip(
        Sampler(policy).sample(UNEVEN_PROMPTS, 3, decoding, generator()), UNEVEN_PROMPTS, strict=True
    ):
        for completion in group:
            encoded_prompt = policy.encode(prompt.text, room=30)
            ids = torch.tensor([encoded_prompt + completion.ids.tolist()])
            with torch.no_grad():
                logits = policy.model(ids).logits[0, len(encoded_prompt) - 1 : -1].float()
            expected = next_token_logprobs(logits, decoding)
            of_tokens = expected.gather(1, torch.tensor(completion.ids)[:, None]).squeeze(1)
            np.testing.assert_allclose(completion.sampler_logprobs, of_tokens, atol=FLOAT32_TOLERANCE)
            entropy = torch.distributions.Categorical(logits=expected).entropy()
            assert completion.entropies is not None
            np.testing.assert_allclose(completion.entropies, entropy, atol=FLOAT32_TOLERANCE)


def test_sampled_rows_do_not_depend_on_the_rest_of_the_batch(tiny):
    problem = Sums(seed=0)
    prompt_batch = [problem.sample(index, "train") for index in range(6)]
    sampled_together = Sampler(tiny).sample(prompt_batch, 4, Decoding(40), generator())
    sampled_apart = Sampler(tiny, rows_at_once=4).sample(prompt_batch, 4, Decoding(40), generator())
    assert [[c.text for c in group] for group in sampled_together] == [
        [c.text for c in group] for group in sampled_apart
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("max_rows", [8, 5, 3, 1])
def test_out_of_memory_halves_the_rows_and_changes_no_completion(tiny, monkeypatch, max_rows):
    """Rows are halved down to a single row of a group, and the next call starts with the size that fit."""
    problem = Sums(seed=0)
    prompt_batch = [problem.sample(index, "train") for index in range(4)]
    sampled_together = Sampler(tiny).sample(prompt_batch, 4, Decoding(40), generator())
    tried_rows, decode = [], Sampler._decode

    def scarce(self, decoder, encoded, sampling, uniforms, notes, *stops):
        tried_rows.append(uniforms.shape[1])
        if tried_rows[-1] > max_rows:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(self, decoder, encoded, sampling, uniforms, notes, *stops)

    monkeypatch.setattr(Sampler, "_decode", scarce)
    limit = RowLimit()
    sampled_apart = Sampler(tiny, limit=limit).sample(prompt_batch, 4, Decoding(40), generator())
    assert [[c.text for c in group] for group in sampled_together] == [
        [c.text for c in group] for group in sampled_apart
    ]
    assert [[c.prompt_tokens for c in group] for group in sampled_together] == [
        [c.prompt_tokens for c in group] for group in sampled_apart
    ]
    halvings = {8: 1, 5: 2, 3: 3, 1: 4}[max_rows]
    assert (limit.halvings, limit.rows) == (halvings, 16 >> halvings)
    assert sum(rows for rows in tried_rows if rows <= max_rows) == 16
    tried_rows.clear()
    Sampler(tiny, limit=limit).sample(prompt_batch, 4, Decoding(40), generator())
    assert max(tried_rows) <= max_rows


def test_equal_generator_states_give_equal_completions_and_others_differ(tiny):
    first, second, of_other_seed = (
        Sampler(tiny).sample(UNEVEN_PROMPTS, 2, Decoding(30), generator(seed)) for seed in (1, 1, 2)
    )
    assert [c.text for c in flatten(first)] == [c.text for c in flatten(second)]
    assert [c.text for c in flatten(first)] != [c.text for c in flatten(of_other_seed)]


def test_a_completion_ends_with_its_stop_token_or_at_the_cap(tiny):
    [[completed]] = Sampler(tiny).sample(UNEVEN_PROMPTS[:1], 1, Decoding(64, temperature=0), generator())
    [[truncated]] = Sampler(tiny).sample(UNEVEN_PROMPTS[:1], 1, Decoding(5, temperature=0), generator())
    assert (completed.finish_reason, truncated.finish_reason) == ("stop", "length")
    assert completed.ids[-1] == tiny.tokenizer.eos_token_id
    assert "<eos>" not in completed.text
    assert "".join(completed.token_strings) == completed.text + "<eos>"
    assert len(truncated) == 5
    assert completed.text.startswith(truncated.text)


def test_the_nucleus_is_the_smallest_set_that_reaches_its_mass():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    chances = next_token_logprobs(logits, Decoding(1, top_p=0.8)).exp()
    torch.testing.assert_close(chances, torch.tensor([[0.625, 0.375, 0.0, 0.0]]))


def test_the_inverse_cdf_maps_uniform_numbers_to_tokens():
    probabilities = torch.tensor([[0.25, 0.0, 0.75]]).expand(5, 3)
    numbers = torch.tensor([0.0, 0.2499, 0.25, 0.9, 1 - 2**-53], dtype=torch.float64)
    assert inverse_cdf(probabilities, numbers).tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize("share", [True, False])
def test_every_completion_reads_a_decoder_row_with_its_own_tokens(share):
    torch.manual_seed(0)
    unfinished = UnfinishedRows.from_prompts(24, 6, torch.device("cpu"))
    tokens_by_row: list[tuple[str | int, ...]] = [(f"prompt {row // 6}",) for row in range(24)]
    read_tokens = tokens_by_row[::6]  # the tokens that each decoder row has read
    for step in range(12):
        tokens = torch.randint(0, 3, (len(unfinished.rows),))
        for row, token in zip(unfinished.rows.tolist(), tokens.tolist(), strict=True):
            tokens_by_row[row] = (*tokens_by_row[row], token)
        unfinished.mark_ended(tokens, torch.tensor([2]) if step > 1 else torch.tensor([9]))
        sources, newest_tokens = unfinished.regroup(tokens, share=share)
        if sources is not None:
            own_sources = [source for row, source in enumerate(sources.tolist()) if source == row]
            assert all(source in own_sources or source >= len(sources) for source in sources.tolist())
            read_tokens = [read_tokens[source] for source in sources.tolist()]
        read_tokens = [(*row, token) for row, token in zip(read_tokens, newest_tokens.tolist(), strict=True)]
        assert unfinished.decoder_rows == len(read_tokens)
        assert [read_tokens[decoder_row] for decoder_row in unfinished.source_rows.tolist()] == [
            tokens_by_row[row] for row in unfinished.rows.tolist()
        ]
        assert len(set(read_tokens)) == len(read_tokens) or not share
    assert len(unfinished.rows) < 24


@pytest.mark.parametrize("decoder", [LeanDecoder, GenericDecoder])
@pytest.mark.parametrize("plan", [Cadence(share=False, interval=1), Cadence(share=False, interval=16)])
def test_neither_shared_rows_nor_late_checks_change_a_completion(tiny, monkeypatch, decoder, plan):
    shared_groups = Sampler(tiny).sample(UNEVEN_PROMPTS, 8, Decoding(64), generator())
    monkeypatch.setattr(sampler_module, "choose_cadence", lambda _: plan)
    monkeypatch.setattr(sampler_module, "decoder_for", decoder)
    plain_groups = Sampler(tiny).sample(UNEVEN_PROMPTS, 8, Decoding(64), generator())
    for shared_completion, plain_completion in zip(
        flatten(shared_groups), flatten(plain_groups), strict=True
    ):
        assert shared_completion.text == plain_completion.text
        np.testing.assert_allclose(
            shared_completion.sampler_logprobs, plain_completion.sampler_logprobs, atol=FLOAT32_TOLERANCE
        )


def test_a_prompt_that_leaves_no_room_in_the_context_is_refused(tiny):
    long_prompts = prompts("1+" * 490 + "1=?")
    with pytest.raises(
        InvalidConfig,
        match=r"has 983 tokens; expected at most 960 \(context 1024 less max_new_tokens 64\)",
    ):
        Sampler(tiny).sample(long_prompts, 2, Decoding(64), generator())


@pytest.mark.parametrize("top_k", [0, 2])
def test_alternatives_are_the_most_probable_tokens_of_the_softmax(tiny, top_k):
    decoding = Decoding(6, top_k=top_k)
    with_alternatives, without_alternatives = (
        flatten(Sampler(tiny, alternatives=count).sample(UNEVEN_PROMPTS, 3, decoding, generator()))
        for count in (3, 0)
    )
    assert [completion.ids.tolist() for completion in with_alternatives] == [
        completion.ids.tolist() for completion in without_alternatives
    ]
    assert all(completion.alternatives is None for completion in without_alternatives)
    for index, completion in enumerate(with_alternatives):
        prompt_ids = tiny.encode(UNEVEN_PROMPTS[index // 3], room=6)
        ids = torch.tensor([[*prompt_ids, *completion.ids.tolist()]])
        with torch.inference_mode():
            probabilities = tiny.model(ids).logits[0, len(prompt_ids) - 1 : -1].softmax(dim=-1)
        ranked_probabilities = probabilities.sort(dim=-1, descending=True)
        expected = ranked_probabilities.values[:, : top_k or 3]
        if top_k:
            expected = expected / expected.sum(dim=-1, keepdim=True)
        alternatives = completion.alternatives
        assert alternatives.ids.shape == (len(completion), 3)
        assert np.allclose(np.exp(alternatives.logprobs[:, : top_k or 3]), expected, atol=1e-4)
        assert np.isneginf(alternatives.logprobs[:, top_k:]).all() if top_k else True
        is_clear = (ranked_probabilities.values[:, 0] - ranked_probabilities.values[:, 1] > 1e-3).numpy()
        assert (alternatives.ids[is_clear, 0] == ranked_probabilities.indices[:, 0].numpy()[is_clear]).all()
