"""Tests of environment settings: errors are reported before the start and contain no secrets."""

import pytest

from backend.base.settings import Settings
from backend.service.cli import main


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "DATABASE_URL",
            "nonsense",
            "DATABASE_URL: it must begin with sqlite:///, postgresql:// or ",
        ),
        ("DATABASE_URL", "mysql://me:canary@h/x", "DATABASE_URL: it must begin with"),
        ("DATABASE_URL", "postgresql+psycopg2://h/x", "it must begin with"),
        ("BROKER_URL", "nonsense", "BROKER_URL: it must begin with redis://, rediss://, "),
        ("BROKER_URL", "amqp://me:canary@h", "it must begin with"),
        ("TRUSTED_PROXIES", "10.0.0.1,proxy", "'proxy' does not appear to be an IPv4 or IPv6 network"),
        ("GRPOLAB_WEBHOOK_SECRET", "whsec_canary", "GRPOLAB_WEBHOOK_SECRET: "),
        ("GRPOLAB_WEBHOOK_SECRET", "canary" * 8, "GRPOLAB_WEBHOOK_SECRET: it must be whsec_ and 24 to 64"),
        ("GRPOLAB_WEBHOOK_URL", "ftp://h/canary", "GRPOLAB_WEBHOOK_URL: it must be an address that begins"),
        ("GRPOLAB_WEBHOOK_URL", "https://me:canary#@h/", "GRPOLAB_WEBHOOK_URL: it must be an address that"),
        (
            "JUDGE_URL",
            "ftp://h/canary",
            "JUDGE_URL: it must be an address that begins with http:// or https://",
        ),
        ("JUDGE_URL", "http://me:canary@h/v1", "JUDGE_URL: it must not hold a user, a password or spaces"),
        ("JUDGE_URL", "http://h/v1", "JUDGE_URL is set: JUDGE_MODEL must name the model there"),
        ("REWARD_MODEL_URL", "http://h", "REWARD_MODEL_URL is set: REWARD_MODEL_NAME must name the model"),
        ("ENGINE_PYTHON", "python", "ENGINE_PYTHON=python: it must be an absolute path"),
        ("ENGINE_ARGUMENTS", "--name 'a", "ENGINE_ARGUMENTS=--name 'a: No closing quotation"),
        ("ARTIFACTS_URL", "bucket/canary", "ARTIFACTS_URL: it must be an address such as s3://bucket/"),
        ("ARTIFACTS_URL", "file://share/canary", "writable storage with the same address on all machines"),
        ("ARTIFACTS_URL", "https://h/c?sig=canary", "writable storage with the same address on all machines"),
        ("ARTIFACTS_URL", "memory://canary", "writable storage with the same address on all machines"),
        ("ARTIFACTS_URL", "s3://b/canary/../x", "it must be one plain address, without ?, #, *, brackets"),
        ("ARTIFACTS_URL", "simplecache::s3://b/canary", "it must be an address such as s3://bucket/"),
        ("ARTIFACTS_URL", "s3://me:canary@b/x", "it must not hold a user or a password"),
        ("PORT", "http", "PORT=http: Input should be a valid integer"),
    ],
)
def test_an_impossible_setting_is_refused_in_one_sentence(name, value, sentence, monkeypatch, capsys):
    monkeypatch.setenv(name, value)
    for command in ("up", "serve", "doctor"):
        assert main([command]) == 1
        output = capsys.readouterr()
        assert (output.out, len(output.err.splitlines())) == ("", 1), command
        assert sentence in output.err, command
        assert "canary" not in output.err, command


@pytest.mark.parametrize(
    ("url", "used"),
    [
        ("postgres://me@h/x", "postgresql://me@h/x"),
        ("postgresql+psycopg://me@h/x", "postgresql+psycopg://me@h/x"),
        ("sqlite:////data/lab.db", "sqlite:////data/lab.db"),
    ],
)
def test_database_urls_are_accepted_in_common_spellings(url, used):
    assert Settings(database_url=url).effective_database_url == used


def test_the_value_of_a_refused_setting_is_in_no_traceback():
    with pytest.raises(ValueError, match="grpolab_webhook_secret") as error_info:
        Settings(grpolab_webhook_secret="canary" * 8)
    assert "canary" not in str(error_info.value)
