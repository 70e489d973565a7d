"""Settings from the environment: refused with a sentence, without their secrets, before anything starts."""

import pytest
from pydantic import ValidationError

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
        ("ARTIFACTS_URL", "file://share/canary", "that can be written and that all machines name alike"),
        ("ARTIFACTS_URL", "https://h/c?sig=canary", "that can be written and that all machines name alike"),
        ("ARTIFACTS_URL", "memory://canary", "that can be written and that all machines name alike"),
        ("ARTIFACTS_URL", "s3://b/canary/../x", "it must be one plain address, without ?, #, *, brackets"),
        ("ARTIFACTS_URL", "simplecache::s3://b/canary", "it must be an address such as s3://bucket/"),
        ("ARTIFACTS_URL", "s3://me:canary@b/x", "it must not hold a user or a password"),
        ("PORT", "http", "PORT=http: Input should be a valid integer"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(name, value, sentence, monkeypatch, capsys):
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
def test_addresses_of_databases_as_people_write_them(url, used):
    assert Settings(database_url=url).effective_database_url == used


def test_the_value_of_a_refused_setting_is_in_no_traceback():
    with pytest.raises(ValueError, match="grpolab_webhook_secret") as refused:
        Settings(grpolab_webhook_secret="canary" * 8)
    assert "canary" not in str(refused.value)


def test_proxies_are_addresses_networks_or_everybody():
    for proxies in ("", "*", "10.0.0.1, 10.1.0.0/16", "::1"):
        assert Settings(trusted_proxies=proxies).trusted_proxies == proxies


def test_the_servers_that_sample_are_addresses_with_commas_and_hold_no_password():
    settings = Settings(engine_url=" http://a:8000/ , https://b/v1 ")
    assert settings.engine_urls == ["http://a:8000", "https://b"]
    with pytest.raises(ValidationError, match="must not hold a user"):
        Settings(engine_url="http://a:8000,http://me:secret@b")
    with pytest.raises(ValidationError, match="begins with http"):
        Settings(engine_url="a:8000")


def test_environments_have_names_and_addresses():
    settings = Settings(openenv_urls=" guess = http://a:8000/ ,maze=https://b/x=y ")
    assert settings.openenv_servers == {"guess": "http://a:8000", "maze": "https://b/x=y"}
    for wrong in (
        "http://a:8000",
        "a=http://a,a=http://b",
        "A=http://a",
        "a=",
        "a=ftp://b",
        "a=http://u:p@b",
    ):
        with pytest.raises(ValidationError):
            Settings(openenv_urls=wrong)


def test_keys_belong_to_environments_that_have_names():
    settings = Settings(openenv_urls="guess=http://a,maze=http://b", openenv_keys=" maze=hf_a=b ,")
    assert settings.openenv_secrets == {"maze": "hf_a=b"}
    for wrong in ("maze", "=key", "maze=", "maze=two words", "maze=\u00e9", "other=key"):
        with pytest.raises(ValidationError):
            Settings(openenv_urls="maze=http://b", openenv_keys=wrong)


@pytest.mark.parametrize(
    "name", ["STATE_DIR", "MODELS_DIR", "DATABASE_URL", "JUDGE_API_KEY", "ENGINE_ARGUMENTS"]
)
@pytest.mark.parametrize("control", ["\n", "\r", "\x1b"])
def test_no_setting_has_a_line_break(monkeypatch, name, control):
    monkeypatch.setenv(name, f"/a{control}b")
    with pytest.raises(ValidationError, match="it must have no line break and no other control character"):
        Settings()


def test_permissions_may_be_written_on_several_lines(monkeypatch):
    monkeypatch.setenv("PLUGIN_PERMISSIONS", '{"judge":\n {"network": true}}')
    assert Settings().permissions["judge"].network
