"""Tests of serving a model: the printed command, and a chat with the server that it starts."""

import subprocess
import sys
import time

import httpx
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.import_utils import is_serve_available

from backend.service.cli import main
from tests.ports import free_port
from worker.policy.model import BUILT_IN

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture
def model(tmp_path):
    """The built-in policy with a chat template."""
    directory = tmp_path / "model"
    AutoModelForCausalLM.from_pretrained(BUILT_IN["tiny"]).save_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(BUILT_IN["tiny"])
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(directory)
    return directory


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_the_command_is_printed(model, capsys, engine):
    assert main(["serve-model", str(model), "--engine", engine, "--port", "8001", "--dry-run"]) == 0
    assert capsys.readouterr().out.strip() == f"{engine} serve {model} --host 127.0.0.1 --port 8001"


@pytest.mark.skipif(not is_serve_available(), reason="needs transformers[serving]")
def test_transformers_serve_answers_a_chat(model):
    port = free_port()
    command = [sys.executable, "-m", "backend.service", "serve-model", str(model), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        body = {"model": str(model), "messages": [{"role": "user", "content": "1+1=?"}], "max_tokens": 4}
        answer = _response(server, f"http://127.0.0.1:{port}/v1/chat/completions", body)
    finally:
        server.terminate()
        output, _ = server.communicate(timeout=30)
    assert answer["choices"][0]["message"]["role"] == "assistant", output
    assert answer["choices"][0]["finish_reason"] in {"stop", "length"}


def _response(server, address, body):
    """Return the server's response, as soon as the server accepts connections."""
    deadline = time.monotonic() + 120
    while True:
        try:
            response = httpx.post(address, json=body, timeout=60, trust_env=False)
        except httpx.TransportError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server does not answer: {server.communicate()[0][-2000:]}")
            time.sleep(0.5)
        else:
            assert response.status_code == 200, response.text[:500]
            return response.json()
