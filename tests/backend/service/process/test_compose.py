"""docker-compose.yml against the code: no engine is needed to see that the two agree."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from backend.base.settings import Settings, service_url
from backend.http.guard import allowed_hosts
from backend.service.cli import COMMANDS
from backend.service.process.preflight import check_exposure
from backend.storage.artifacts.store import STORAGE_VARIABLES

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
OURS = ("api", "worker")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
EXAMPLE = (ROOT / ".env.example").read_text()
VARIABLE = re.compile(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}")
MADE_UP = {"POSTGRES_PASSWORD": "dc0ffee", "REDIS_PASSWORD": "decade", "GRPOLAB_TOKEN": "5ec4e7" * 10}


def filled_in(value, **variables) -> str:
    """A value as compose would pass it, with the defaults of the file and made-up secrets."""
    values = MADE_UP | variables
    text = "" if value is None else str(value)
    return VARIABLE.sub(lambda match: str(values.get(match[1], match[3] or "")), text).replace("$$", "$")


def settings_of(service: str, **variables) -> Settings:
    environment = SERVICES[service]["environment"]
    values = {name.lower(): filled_in(value, **variables) for name, value in environment.items()}
    return Settings.model_validate({name: value for name, value in values.items() if value})


def own_names(environment):
    """Without the variables that the storage of checkpoints reads itself."""
    return {name for name in environment if not name.startswith(STORAGE_VARIABLES)}


def test_the_four_services_are_there():
    assert set(SERVICES) == {"api", "worker", "postgres", "redis"}


@pytest.mark.parametrize("service", OURS)
def test_every_variable_is_a_setting(service):
    names = own_names(SERVICES[service]["environment"])
    assert {name.lower() for name in names} <= set(Settings.model_fields)


def test_every_setting_can_be_given_and_has_the_same_default():
    given_names = set[str]().union(*(own_names(SERVICES[service]["environment"]) for service in OURS))
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
    for service in OURS:
        container_settings = settings_of(service).model_dump(exclude=placed | {"grpolab_token"})
        assert container_settings == Settings.model_construct().model_dump(include=set(container_settings))


@pytest.mark.parametrize("service", OURS)
def test_the_settings_are_valid_and_point_at_the_other_services(service):
    settings = settings_of(service)
    assert settings.effective_database_url == "postgresql://grpolab:dc0ffee@postgres/grpolab"
    assert settings.broker_url == "redis://:decade@redis:6379/0"
    assert settings.state == Path("/state")


def test_the_api_may_listen_to_the_container_network():
    settings = settings_of("api")
    assert settings.host == "0.0.0.0"
    check_exposure(settings)


def test_the_published_port_is_the_one_that_the_api_listens_on():
    [published] = SERVICES["api"]["ports"]
    address, host_port, container_port = filled_in(published).split(":")
    assert address == "127.0.0.1"
    assert int(host_port) == Settings.model_fields["port"].default
    assert int(container_port) == settings_of("api").port
    assert f"EXPOSE {container_port}" in DOCKERFILE


def test_another_port_is_the_same_one_inside_so_links_and_addresses_fit():
    [published] = SERVICES["api"]["ports"]
    settings = settings_of("api", PORT="9000")
    assert filled_in(published, PORT="9000") == "127.0.0.1:9000:9000"
    assert settings.port == 9000
    assert service_url(settings) == "http://127.0.0.1:9000"
    assert {"127.0.0.1:9000", "localhost:9000"} <= allowed_hosts(settings)


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_can_do_little(service):
    container = SERVICES[service]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in container
    assert set(container.get("cap_add", [])) <= {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
    assert "cap_add" not in container or service == "postgres"


def test_what_must_be_written_to_is_a_volume_or_memory():
    for service in OURS:
        assert "/tmp" in SERVICES[service]["tmpfs"]
    assert "HF_HOME=/state/" in DOCKERFILE


@pytest.mark.parametrize("name", ["GRPOLAB_VIEWER_TOKEN", "GRPOLAB_WRITER_KEY"])
def test_other_secrets_are_passed_on_and_never_made_of_a_text_of_this_file(name):
    assert SERVICES["api"]["environment"][name] is None
    assert f"${{{name}" not in TEXT
    assert f"\n{name}=\n" in EXAMPLE


def test_redis_takes_its_password_from_standard_input_and_its_health_check_knows_it(tmp_path):
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


def test_api_and_worker_see_the_same_state():
    for service in OURS:
        targets = {volume.rsplit(":")[1] for volume in map(filled_in, SERVICES[service]["volumes"])}
        assert targets == {"/state", "/models", "/datasets"}
        assert {str(settings_of(service).models_dir), str(settings_of(service).datasets_dir)} <= targets


def test_every_named_volume_is_declared_and_used():
    sources = {
        filled_in(volume).split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
    }
    assert {source for source in sources if not source.startswith((".", "/"))} == set(COMPOSE["volumes"])


def test_every_service_but_the_worker_has_a_health_check_that_others_wait_for():
    assert {name for name, service in SERVICES.items() if "healthcheck" in service} == {
        "api",
        "postgres",
        "redis",
    }
    for service in OURS:
        assert all(SERVICES[dependency]["healthcheck"] for dependency in SERVICES[service]["depends_on"])
        assert {wish["condition"] for wish in SERVICES[service]["depends_on"].values()} == {"service_healthy"}


def test_the_health_check_asks_for_a_route_that_exists_on_the_right_port():
    from backend.service.main import create_app

    check = SERVICES["api"]["healthcheck"]["test"][-1]
    match = re.search(r"http://127\.0\.0\.1:' \+ os\.environ\['PORT'\] \+ '(/\w+)", check)
    assert match is not None
    assert match[1] in create_app(Settings()).openapi()["paths"]


def test_a_trainer_has_time_for_its_checkpoint():
    assert SERVICES["worker"]["stop_grace_period"] == "120s"
    assert SERVICES["worker"]["init"] is True


def test_the_worker_reserves_the_gpus():
    [device] = SERVICES["worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["driver"] == "nvidia"
    assert device["capabilities"] == ["gpu"]


def test_redis_never_evicts_and_keeps_nothing():
    command = SERVICES["redis"]["command"][-1]
    assert all(
        option in command for option in ('--save ""', "--appendonly no", "--maxmemory-policy noeviction")
    )


@pytest.mark.parametrize("secret", sorted(MADE_UP))
def test_a_secret_has_no_default_and_its_absence_has_a_sentence(secret):
    uses = [match for match in VARIABLE.finditer(TEXT) if match[1] == secret]
    assert uses
    assert all(match[2] == ":?" and match[3] for match in uses)
    assert f"\n{secret}=\n" in EXAMPLE


def test_no_value_that_looks_like_a_secret_is_written_down():
    for service in SERVICES.values():
        for name, value in service["environment"].items() if "environment" in service else ():
            if re.search("PASSWORD|TOKEN|SECRET|KEY", name) and value is not None:
                assert VARIABLE.fullmatch(value)


@pytest.mark.parametrize("service", OURS)
def test_the_image_of_a_service_is_a_target_of_the_dockerfile(service):
    build = SERVICES[service]["build"]
    assert f" AS {build['target']}\n" in DOCKERFILE
    arguments = set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.MULTILINE))
    assert set(build.get("args", {})) <= arguments


def test_every_command_of_the_dockerfile_exists():
    commands = re.findall(r'CMD \["python", "-m", "backend.service", "(\w+)"\]', DOCKERFILE)
    assert commands == ["serve", "worker"]
    assert set(commands) <= set(COMMANDS)


def test_everything_that_the_dockerfile_copies_is_in_the_build_context():
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    copied = {
        name for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    assert copied
    assert all(list(ROOT.glob(name)) and f"!{name}" in ignore for name in copied)
