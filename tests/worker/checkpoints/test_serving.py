"""Served models: the command line, and a chat with the server that it starts."""

import shutil
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
def test_the_line_is_printed(model, capsys, engine):
    assert main(["serve-model", str(model), "--engine", engine, "--port", "8001", "--dry-run"]) == 0
    assert capsys.readouterr().out.strip() == f"{engine} serve {model} --host 127.0.0.1 --port 8001"


def test_what_is_no_model_is_not_served(tmp_path, capsys):
    assert main(["serve-model", str(tmp_path)]) == 1
    assert "holds no model" in capsys.readouterr().err
    (tmp_path / "adapter_config.json").write_text("{}")
    assert main(["serve-model", str(tmp_path)]) == 1
    assert "holds an adapter alone: export it first" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("vllm") is not None, reason="vLLM is installed")
def test_an_engine_that_is_not_installed_is_named(model, capsys):
    assert main(["serve-model", str(model), "--engine", "vllm"]) == 1
    assert "vllm is not installed here: run the line above where it is" in capsys.readouterr().err


@pytest.mark.skipif(is_serve_available(), reason="the packages are installed")
def test_packages_that_transformers_lacks_are_named(model, capsys):
    assert main(["serve-model", str(model)]) == 1
    assert "pip install 'transformers[serving]'" in capsys.readouterr().err


@pytest.mark.skipif(not is_serve_available(), reason="needs transformers[serving]")
def test_transformers_answers_a_chat(model):
    port = free_port()
    command = [sys.executable, "-m", "backend.service", "serve-model", str(model), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        body = {"model": str(model), "messages": [{"role": "user", "content": "1+1=?"}], "max_tokens": 4}
        answer = _asked(server, f"http://127.0.0.1:{port}/v1/chat/completions", body)
    finally:
        server.terminate()
        output, _ = server.communicate(timeout=30)
    assert answer["choices"][0]["message"]["role"] == "assistant", output
    assert answer["choices"][0]["finish_reason"] in {"stop", "length"}


def _asked(server, address, body):
    """The server's answer, as soon as it listens."""
    deadline = time.monotonic() + 120
    while True:
        try:
            answer = httpx.post(address, json=body, timeout=60, trust_env=False)
        except httpx.TransportError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server does not answer: {server.communicate()[0][-2000:]}")
            time.sleep(0.5)
        else:
            assert answer.status_code == 200, answer.text[:500]
            return answer.json()
