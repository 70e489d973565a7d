"""Tests that docker-compose.yml agrees with the code, without a container engine."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from backend.base.settings import Settings
from backend.service.process.preflight import check_exposure
from backend.storage.artifacts.store import STORAGE_VARIABLES

ROOT = Path(__file__).parents[4]
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE = yaml.safe_load(COMPOSE_TEXT)
SERVICES = COMPOSE["services"]
OUR_SERVICES = ("api", "worker")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
EXAMPLE_ENV = (ROOT / ".env.example").read_text()
VARIABLE_PATTERN = re.compile(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}")
FAKE_SECRETS = {"POSTGRES_PASSWORD": "dc0ffee", "REDIS_PASSWORD": "decade", "GRPOLAB_TOKEN": "5ec4e7" * 10}


def filled_in(value, **variables) -> str:
    """Return a value as compose would pass it, with the defaults of the file and fake secrets."""
    values = FAKE_SECRETS | variables
    text = "" if value is None else str(value)
    return VARIABLE_PATTERN.sub(lambda match: str(values.get(match[1], match[3] or "")), text).replace(
        "$$", "$"
    )


def read_settings(service: str, **variables) -> Settings:
    environment = SERVICES[service]["environment"]
    values = {name.lower(): filled_in(entry, **variables) for name, entry in environment.items()}
    return Settings.model_validate({name: entry for name, entry in values.items() if entry})


def setting_names(environment):
    """Return the variables except those that the checkpoint storage reads itself."""
    return {name for name in environment if not name.startswith(STORAGE_VARIABLES)}


def test_every_setting_can_be_set_and_has_the_same_default():
    given_names = set[str]().union(
        *(setting_names(SERVICES[service]["environment"]) for service in OUR_SERVICES)
    )
    assert given_names == {name.upper() for name in Settings.model_fields}
    placed = {
        "host",
        "allowed_hosts",
        "state_dir",
        "models_dir",
        "datasets_dir",
        "database_url",
        "broker_url",
    }
    for service in OUR_SERVICES:
        container_settings = read_settings(service).model_dump(exclude=placed | {"grpolab_token"})
        assert container_settings == Settings.model_construct().model_dump(include=set(container_settings))


@pytest.mark.parametrize("service", OUR_SERVICES)
def test_the_settings_are_valid_and_point_at_the_other_services(service):
    settings = read_settings(service)
    assert settings.effective_database_url == "postgresql://grpolab:dc0ffee@postgres/grpolab"
    assert settings.broker_url == "redis://:decade@redis:6379/0"
    assert settings.state == Path("/state")


def test_the_api_may_listen_to_the_container_network():
    settings = read_settings("api")
    assert settings.host == "0.0.0.0"
    check_exposure(settings)


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_has_few_privileges(service):
    container = SERVICES[service]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in container
    assert set(container.get("cap_add", [])) <= {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
    assert "cap_add" not in container or service == "postgres"


@pytest.mark.parametrize("name", ["GRPOLAB_VIEWER_TOKEN", "GRPOLAB_WRITER_KEY"])
def test_other_secrets_are_passed_on_and_never_built_from_text_in_this_file(name):
    assert SERVICES["api"]["environment"][name] is None
    assert f"${{{name}" not in COMPOSE_TEXT
    assert f"\n{name}=\n" in EXAMPLE_ENV


def test_redis_reads_its_password_from_standard_input_and_its_health_check_uses_it(tmp_path):
    argv = [filled_in(argument) for argument in SERVICES["redis"]["command"]]
    (tmp_path / "redis-server").write_text('#!/bin/sh\necho "$@"\ncat\n')
    (tmp_path / "redis-server").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "REDIS_PASSWORD": "decade"}
    output = subprocess.check_output(argv, env=environment, text=True)
    arguments, *config = output.splitlines()
    assert arguments.startswith("- --save  --appendonly no")
    assert "decade" not in arguments
    assert config == ["requirepass decade"]
    assert 'REDISCLI_AUTH="$REDIS_PASSWORD"' in filled_in(SERVICES["redis"]["healthcheck"]["test"][-1])


def test_the_health_check_requests_an_existing_route_on_the_right_port():
    from backend.service.main import create_app

    check = SERVICES["api"]["healthcheck"]["test"][-1]
    match = re.search(r"http://127\.0\.0\.1:' \+ os\.environ\['PORT'\] \+ '(/\w+)", check)
    assert match is not None
    assert match[1] in create_app(Settings()).openapi()["paths"]


@pytest.mark.parametrize("secret", sorted(FAKE_SECRETS))
def test_a_secret_has_no_default_and_its_absence_has_an_error_message(secret):
    uses = [match for match in VARIABLE_PATTERN.finditer(COMPOSE_TEXT) if match[1] == secret]
    assert uses
    assert all(match[2] == ":?" and match[3] for match in uses)
    assert f"\n{secret}=\n" in EXAMPLE_ENV


def test_the_file_contains_no_value_that_looks_like_a_secret():
    for service in SERVICES.values():
        for name, entry in service["environment"].items() if "environment" in service else ():
            if re.search("PASSWORD|TOKEN|SECRET|KEY", name) and entry is not None:
                assert VARIABLE_PATTERN.fullmatch(entry)


def test_everything_that_the_dockerfile_copies_is_in_the_build_context():
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    copied_names = {
        name for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    assert copied_names
    assert all(list(ROOT.glob(name)) and f"!{name}" in ignore for name in copied_names)
