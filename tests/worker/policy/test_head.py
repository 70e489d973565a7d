"""Tests of models that scale or cap their logits, and of models whose config does not define them."""

import pytest
import torch

from backend.base.errors import InvalidConfig
from tests.models.architectures import build
from worker.policy.head import check_head, make_head


@pytest.mark.parametrize("name", ["gemma2", "falcon_h1", "granite", "cohere2"])
@pytest.mark.parametrize("size", [1.0, 200.0])
def test_a_scale_or_cap_of_the_logits_is_that_of_the_model(name, size):
    model, ids = build(name), torch.arange(12)[None]
    hidden_states = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state * size
    model.get_decoder().register_forward_hook(
        lambda _body, _inputs, output: setattr(output, "last_hidden_state", output.last_hidden_state * size)
    )
    torch.testing.assert_close(make_head(model)(hidden_states), model(input_ids=ids, use_cache=False).logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "change"), [("gemma2", {"cap": None}), ("granite", {"scale": 1.0}), ("qwen3", {"scale": 2.0})]
)
def test_a_config_that_does_not_define_the_logits_is_refused(name, change, dtype, monkeypatch):
    model = build(name, dtype=dtype)
    check_head(model, name="mine")
    changed_head = make_head(model)._replace(**change)
    monkeypatch.setattr("worker.policy.head.make_head", lambda _model: changed_head)
    with pytest.raises(InvalidConfig, match=r"'mine' \(\w+\) changes its logits in a way"):
        check_head(model, name="mine")
