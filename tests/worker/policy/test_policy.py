import json
import shutil

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backend.base.errors import InvalidConfig
from backend.base.settings import Settings
from backend.config.sections import OptimizerConfig, PolicyConfig
from worker.policy import logprobs as logprobs_module
from worker.policy.logprobs import next_tokens, token_energies, token_logprobs
from worker.policy.model import BUILT_IN, load_policy
from worker.policy.optimizer import PolicyOptimizer, learning_rate
from worker.policy.token_batch import token_batch
from worker.policy.token_texts import TokenTexts


@pytest.fixture(scope="module")
def double():
    """The tiny policy in double precision, so that the order of CPU sums does not affect comparisons."""
    policy = load_policy(PolicyConfig(), Settings())
    policy.model.double()
    return policy


@pytest.fixture
def offline(tmp_path):
    return Settings(models_dir=tmp_path)


@pytest.fixture
def copy(tmp_path):
    """A directory in MODELS_DIR with a copy of the tiny policy, which tests modify."""
    files = [
        path for path in BUILT_IN["tiny"].iterdir() if path.suffix in {".json", ".safetensors", ".jinja"}
    ]
    (tmp_path / "mine").mkdir()
    for path in files:
        shutil.copy(path, tmp_path / "mine")
    return tmp_path / "mine"


def find_error(name, settings, **changes):
    with pytest.raises(InvalidConfig) as error_info:
        load_policy(PolicyConfig(name=name, **changes), settings)
    [error] = error_info.value.errors
    return error


def test_the_built_in_policy_is_a_small_qwen3_with_a_character_tokenizer(tiny):
    assert tiny.model.config.model_type == "qwen3"
    assert sum(weight.numel() for weight in tiny.model.parameters()) == 800_768
    assert tiny.tokenizer.tokenize("<think>8+5</think>") == ["<think>", "8", "+", "5", "</think>"]
    assert tiny.context == 1024
    assert not tiny.model.training


def test_a_hub_name_while_offline_is_refused(offline, tmp_path):
    path, message, _ = find_error("Qwen/Qwen3-0.6B", offline)
    assert path == "policy.name"
    assert message == (
        f"'Qwen/Qwen3-0.6B' is neither built in nor a directory of MODELS_DIR ({tmp_path}), "
        "and a hub name needs HF_ONLINE=1"
    )


def test_pickled_weights_are_refused(copy, offline):
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    assert "holds no weights (expected *.safetensors)" in find_error("mine", offline).message


def test_a_model_with_custom_code_is_refused(copy, offline):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(
        json.dumps(config | {"auto_map": {"AutoModelForCausalLM": "evil.Model"}})
    )
    assert "requires custom code (auto_map, trust_remote_code)" in find_error("mine", offline).message


def test_a_tokenizer_larger_than_the_model_is_refused(copy, offline):
    document = json.loads((copy / "tokenizer.json").read_text())
    document["model"]["vocab"]["extra"] = 101
    (copy / "tokenizer.json").write_text(json.dumps(document))
    assert "the tokenizer has 102 tokens, the model only 101" in find_error("mine", offline).message


@pytest.mark.parametrize(
    ("ending", "opens"),
    [("<think>\\n", True), ("<think>", True), ("", False), ("<think>\\n\\n</think>\\n\\n", False)],
)
def test_a_template_that_ends_the_prompt_with_an_open_tag_is_detected(copy, offline, ending, opens):
    opening = "{% if add_generation_prompt %}A:" + ending.replace("\\n", "\n") + "{% endif %}"
    (copy / "chat_template.jinja").write_text("{{ messages[0]['content'] }}" + opening)
    policy = load_policy(PolicyConfig(name="mine", chat_template=True), offline)
    assert policy.opens_think is opens
    assert not load_policy(PolicyConfig(name="mine"), offline).opens_think


def reference_logprobs(policy, prompt, completion, temperature):
    """Return the log-probabilities of one row, computed from all its logits."""
    with torch.no_grad():
        logits = policy.model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1].float()
    distribution = torch.distributions.Categorical(logits=logits / temperature)
    return distribution.log_prob(torch.tensor(completion)), distribution.entropy()


PROMPTS = ["85+60+88=?", "1+2=?", "85+60+88=?"]
COMPLETIONS = ["<think>85+60=145,145+88=233</think>\\boxed{233}<eos>", "\\boxed{3}<eos>", "<think>"]


def ids(policy, texts):
    return [policy.tokenizer.encode(text) for text in texts]


@pytest.fixture(params=["tree", "rows"])
def _way(request, monkeypatch):
    """Select one of two ways to compute hidden states: the tree of prefixes or the model's own forward."""
    monkeypatch.setattr(logprobs_module, "suits_tree", lambda *_: request.param == "tree")


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("elements", [2**27, 700])
def test_log_probabilities_of_a_padded_batch_match_single_rows(double, temperature, elements, monkeypatch):
    monkeypatch.setattr(logprobs_module, "CHUNK_ELEMENTS", elements)
    prompts, completions = ids(double, PROMPTS), ids(double, COMPLETIONS)
    batch = token_batch(prompts, completions, pad_id=double.pad_id)
    result = token_logprobs(double.model, batch, temperature=temperature)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        logprobs, entropy = reference_logprobs(double, prompt, completion, temperature)
        torch.testing.assert_close(result.logprobs[row, : len(completion)], logprobs, atol=1e-5, rtol=0)
        torch.testing.assert_close(result.entropy[row, : len(completion)], entropy, atol=1e-5, rtol=0)
        assert not result.logprobs[row, len(completion) :].any()
        assert not result.entropy[row, len(completion) :].any()


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("elements", [2**27, 700])
def test_the_energy_of_a_token_is_the_squared_distance_of_its_score(double, elements, monkeypatch):
    monkeypatch.setattr(logprobs_module, "CHUNK_ELEMENTS", elements)
    batch = token_batch(ids(double, PROMPTS), ids(double, COMPLETIONS), pad_id=double.pad_id)
    all_tokens = next_tokens(double.model, batch, temperature=0.6)
    chances = all_tokens.logprobs.exp()[all_tokens.state_indices]
    rows, columns = all_tokens.positions
    drawn_ids = batch.ids[rows, batch.prompt_lengths[rows] + columns]
    score = torch.nn.functional.one_hot(drawn_ids, chances.shape[1]) - chances
    energies = token_energies(double.model, batch, temperature=0.6)
    torch.testing.assert_close(energies[rows, columns], score.square().sum(dim=1).float(), atol=1e-5, rtol=0)
    assert int((energies > 0).sum()) <= len(rows)


def compute_gradient(policy, batch, weight=lambda result: result.logprobs.sum(), **options):
    policy.model.zero_grad()
    weight(token_logprobs(policy.model, batch, temperature=1.0, **options)).backward()
    return torch.cat([parameter.grad.flatten() for parameter in policy.model.parameters()])


def test_the_prefix_tree_has_the_gradient_of_the_padded_batch(double, monkeypatch):
    """The prompts contain the padding token, like chat templates that end messages with it."""
    prompts = [[*prompt, double.pad_id, *prompt] for prompt in ids(double, PROMPTS * 2)]
    completions = ids(double, [*COMPLETIONS, COMPLETIONS[0], "\\boxed{4}", "<think>85"])
    batch = token_batch(prompts, completions, pad_id=double.pad_id)
    weights = torch.linspace(-1, 2, batch.mask.numel()).view(batch.mask.shape)
    by_form = []
    for tree in (True, False):
        monkeypatch.setattr(logprobs_module, "suits_tree", lambda *_, tree=tree: tree)
        by_form.append(compute_gradient(double, batch, lambda result: (result.logprobs * weights).sum()))
        assert double.model.get_input_embeddings().weight.grad[double.pad_id].abs().max() > 0.1
    torch.testing.assert_close(*by_form, atol=1e-5, rtol=0)


def test_chunks_of_the_vocabulary_do_not_change_the_gradient(double, monkeypatch):
    batch = token_batch(ids(double, PROMPTS), ids(double, COMPLETIONS), pad_id=double.pad_id)
    unchunked = compute_gradient(double, batch)
    monkeypatch.setattr(logprobs_module, "CHUNK_ELEMENTS", 700)
    torch.testing.assert_close(compute_gradient(double, batch), unchunked, atol=1e-5, rtol=0)


def byte_level_tokenizer():
    vocabulary = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_long_runs_of_invalid_bytes_are_decoded_in_small_pieces_without_losses(monkeypatch):
    tokenizer = byte_level_tokenizer()
    sequence = tokenizer.encode("é😀")
    ids = [sequence[0]] * 301 + sequence + [sequence[2]] * 50
    texts, lengths = TokenTexts(tokenizer), []
    decode = texts._decode

    def count_and_decode(token_ids: list[int]) -> str:
        lengths.append(len(token_ids))
        return decode(token_ids)

    monkeypatch.setattr(texts, "_decode", count_and_decode)
    assert "".join(texts.decode_each(ids)) == decode(ids)
    assert "é😀" in decode(ids)
    assert max(lengths) <= 40


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 1.0, 1.0, 0.8536, 0.5, 0.1464]),
    ],
)
def test_the_learning_rate_warms_up_and_follows_its_schedule(schedule, rates):
    config = OptimizerConfig(lr=1.0, warmup_steps=2, schedule=schedule)
    assert [round(learning_rate(config, step=step, steps=6), 4) for step in range(1, 7)] == rates


def linear_model(dtype=torch.float32):
    model = torch.nn.Linear(2, 1, bias=False, dtype=dtype)
    torch.nn.init.ones_(model.weight)
    return model


def test_a_nonfinite_gradient_changes_nothing():
    model = linear_model()
    optimizer = PolicyOptimizer(model, OptimizerConfig(lr=0.1), steps=10)
    model.weight.grad = torch.tensor([[1.0, float("nan")]])
    update = optimizer.step(1)
    assert not update.applied
    assert model.weight.tolist() == [[1.0, 1.0]]
    assert optimizer.tensors() == {}


def test_the_gradient_is_scaled_down_to_its_maximum_norm():
    model = linear_model()
    optimizer = PolicyOptimizer(model, OptimizerConfig(lr=0.1, max_grad_norm=1.0), steps=10)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    assert optimizer.step(1).grad_norm == 5.0
    torch.testing.assert_close(optimizer.adam.state[model.weight]["exp_avg"], torch.tensor([[0.06, 0.08]]))


def test_small_updates_of_a_bfloat16_policy_add_up():
    model = linear_model(torch.bfloat16)
    optimizer = PolicyOptimizer(model, OptimizerConfig(lr=1e-3), steps=100)
    for step in range(1, 101):
        model.weight.grad = torch.ones(1, 2, dtype=torch.bfloat16)
        optimizer.step(step)
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[0.9, 0.9]]).bfloat16())


def test_gradients_of_a_bfloat16_policy_add_up_in_float32():
    weight = torch.nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    optimizer = PolicyOptimizer(weight, OptimizerConfig(max_grad_norm=1e9), steps=1)
    for gradient in (256.0, 1.0):  # bfloat16 has 8 significant bits, so 256 + 1 = 256
        weight.weight.grad = torch.full((1, 1), gradient, dtype=torch.bfloat16)
        optimizer.take_gradients()
    assert optimizer.step(1).grad_norm == 257
    assert weight.weight.grad is None
    assert all(master.grad is None for master in optimizer.masters.values())
