"""Settings of an installation, read from the environment and validated once."""

import base64
import ipaddress
import re
import shlex
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, TypeAdapter, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from backend.base.plugin_permissions import Permissions
from backend.base.wording import has_control

MAX_LEASE_SECONDS = 3600.0

PERMISSIONS_ADAPTER = TypeAdapter(dict[str, Permissions])

DATABASE_PREFIXES = ("sqlite:///", "postgresql://", "postgresql+psycopg://")
BROKER_PREFIXES = ("redis://", "rediss://", "redis+socket://", "filesystem://")
"""Allowed prefixes of the broker's address. Only databases and brokers that are tested are allowed."""


class Settings(BaseSettings):
    """The settings of an installation: where it listens, what it writes to and what it may reach."""

    model_config = SettingsConfigDict(
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    host: str = "127.0.0.1"
    """Address the API listens on."""

    port: Annotated[int, Field(ge=1, le=65535)] = 8400
    """Port the API listens on."""

    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Additional host names (comma separated) under which the API may be reached, e.g. behind a proxy."""

    state_dir: Path = Path("state")
    """Directory for the files of the service except uploads: database, checkpoints, sockets and token."""

    artifacts_url: str = ""
    """Address that checkpoints are copied to, such as s3://bucket/grpolab. If empty,
    they are stored only in the state directory.
    """

    database_url: str = ""
    """SQLAlchemy URL of the database. If empty, SQLite in the state directory is used."""

    broker_url: str = ""
    """Celery broker URL. If empty, the embedded broker is used (Valkey on a Unix socket, or else files)."""

    models_dir: Path = Path("models")
    """Directory whose subdirectories are offered as local policies."""

    datasets_dir: Path = Path("datasets")
    """Directory of uploads and other JSONL files that are offered as problems. All machines must share it."""

    upload_bytes: Annotated[int, Field(ge=1_000, le=2**40)] = 512_000_000
    """Maximum size of an uploaded dataset or log, in bytes. A dataset may not exceed it unpacked either."""

    hf_online: bool = False
    """Whether policies and datasets may be downloaded from the Hugging Face hub."""

    token_mb_per_run: Annotated[int, Field(ge=0, le=2**40)] = 2_000
    """Maximum size of a run's stored token values, in MB. The oldest are removed first. 0 means no limit."""

    token_mb: Annotated[int, Field(ge=0, le=2**40)] = 20_000
    """Maximum size of the stored token values of all runs, in MB. The run with the
    most is trimmed first. 0 means no limit.
    """

    worker_slots: Annotated[int, Field(ge=0, le=64)] = 0
    """Number of runs that train at a time on this machine. 0 means one per GPU, or
    without GPUs one per CPU core, but at most four.
    """

    worker_runs: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of runs after which a worker exits. 0 means never."""

    worker_idle_seconds: Annotated[float, Field(ge=0, le=1e7)] = 0.0
    """Seconds without a run after which a worker exits. 0 means never."""

    worker_until: Annotated[float, Field(ge=0, le=1e11)] = 0.0
    """Time at which a worker exits, in seconds since 1970 (UTC). 0 means never."""

    worker_nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of nodes in a worker's group, which train one run together. 1 means that it works alone."""

    worker_node_rank: Annotated[int, Field(ge=0, le=63)] = 0
    """Rank of a worker's node within its group. The node with rank 0 leads the group."""

    worker_group: Annotated[str, Field(max_length=128)] = ""
    """Name of the group of nodes. All workers of the group must have the same name, and no others."""

    node_address: str = ""
    """Name or address under which the other nodes of a group reach this one, and at which the ranks meet. If
    empty, the name of the host is used.
    """

    node_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port at which the ranks of a group meet, or the first of 32 that are tried. 0 means any free port."""

    slot_price: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Price of one worker slot of this machine per hour, for the cost of runs. 0 means no price."""

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    """ISO 4217 code of the currency of SLOT_PRICE and of the prices of reward servers."""

    lease_seconds: Annotated[float, Field(gt=0.5, le=MAX_LEASE_SECONDS)] = 60.0
    """Duration of a worker's lease on a run, in seconds. The worker renews the lease before it expires."""

    poll_seconds: Annotated[float, Field(gt=0.05, le=600)] = 15.0
    """Interval at which a worker polls for runs without a broker message, in seconds."""

    grpolab_token: str = ""
    """Token of the operator. If empty, one is generated and stored in the state directory."""

    log_format: Literal["text", "json"] = "text"
    """Format of the logs: `text` for people, `json` for one JSON object per line."""

    grpolab_viewer_token: str = ""
    """Token of viewers, who can read everything and change nothing. If empty, it is generated and stored."""

    grpolab_writer_key: str = ""
    """Key that signs the tokens of writers, who can only push runs. If empty, it is generated and stored."""

    grpolab_webhook_url: str = ""
    """Public https:// address that events of runs are posted to. If empty, none are posted."""

    grpolab_webhook_secret: str = ""
    """Key that signs webhooks according to Standard Webhooks: `whsec_` and 24 to 64 bytes in base64. It is
    required unless Slack or Discord receives them.
    """

    grpolab_webhook_format: Literal["auto", "json", "slack", "discord"] = "auto"
    """Format of webhooks. `auto` means that of Slack or Discord if the address is theirs, otherwise JSON."""

    grpolab_webhook_level: Literal["info", "warning", "error"] = "info"
    """Minimum level of the events that are posted. A collapse or a failed run is an `error`."""

    grpolab_webhook_private: bool = False
    """Whether the webhook may have an internal address (loopback, private, link-local) and use http://."""

    trusted_proxies: str = ""
    """Addresses (comma separated) of proxies whose X-Forwarded-For and -Proto headers are trusted."""

    writes_per_second: Annotated[float, Field(ge=0, le=100_000)] = 10.0
    """Average number of changes per second that one token may make, with bursts of
    up to 20 seconds' worth. 0 means no limit.
    """

    streams_per_token: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Maximum number of live pages that one token may have open at a time. 0 means no limit."""

    sandbox: Literal["auto", "required", "unconfined"] = "auto"
    """Whether a machine that lacks a layer of the sandbox may train. `auto` means that it may, but without
    user namespaces and Landlock it runs no programs of the policy and no reward plugins. `required` means
    that it may not. `unconfined` means that it also runs those, which can then read every file that the
    worker can read.
    """

    plugin_permissions: str = ""
    """Permissions of reward plugins, as JSON by plugin name, e.g. {"judge": {"network": true}}."""

    judge_url: str = ""
    """Base address of the OpenAI-compatible server for the reward `judge`, such as http://127.0.0.1:8000/v1.
    If empty, no run can use that reward.
    """

    judge_model: str = ""
    """Name of the judge's model on that server."""

    judge_api_key: str = ""
    """API key that is sent to the judge's server. If empty, none is sent."""

    judge_input_price: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Price of a million tokens that the judge reads, in CURRENCY, for the cost of runs. 0 means no price."""

    judge_output_price: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Price of a million tokens that the judge writes, in CURRENCY. 0 means no price."""

    reward_model_url: str = ""
    """Base address of the vLLM server for the reward `reward_model`, such as http://127.0.0.1:8001, whose
    route /pooling is called. If empty, no run can use that reward.
    """

    reward_model_name: str = ""
    """Name of the reward model on that server."""

    reward_model_api_key: str = ""
    """API key that is sent to the reward model's server. If empty, none is sent."""

    reward_model_price: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Price of a million tokens that the reward model reads, in CURRENCY. 0 means no price."""

    judge_concurrency: Annotated[int, Field(ge=1, le=1024)] = 256
    """Maximum number of concurrent requests that one reward term of a run sends to its server."""

    engine_url: str = ""
    """Addresses (comma separated) of the vLLM servers that sample for runs with sampling.engine = server,
    such as http://127.0.0.1:8000. If empty, no run can use that engine.
    """

    engine_model: str = ""
    """Name of the model on those servers. If empty, they must serve exactly one model."""

    engine_api_key: str = ""
    """API key that is sent to those servers. If empty, none is sent."""

    engine_dir: str = ""
    """Directory through which new weights reach those servers, which must see it under the same path. If
    empty, `engine` in the state directory is used.
    """

    engine_logprobs: Literal["raw", "processed"] = "raw"
    """The --logprobs-mode of those servers. With `raw`, runs need temperature 1, no top_p and no top_k."""

    engine_concurrency: Annotated[int, Field(ge=1, le=4096)] = 256
    """Maximum number of prompts that one run may have in progress at those servers."""

    engine_python: str = ""
    """Absolute path of a Python interpreter that can import vLLM, such as /opt/vllm/bin/python. Trainers use
    it to start the server of a run with sampling.engine = colocated. If empty, no run can use that engine.
    """

    engine_arguments: str = ""
    """Additional arguments of that server, quoted as in a shell, such as --enforce-eager."""

    openenv_urls: str = ""
    """Names and addresses (comma separated) of the OpenEnv servers that runs may
    use, such as guess=http://127.0.0.1:8000.
    """

    openenv_keys: str = ""
    """Names of those servers and the keys (comma separated) that are sent to
    them as bearer tokens, such as guess=hf_....
    """

    reads_per_token: Annotated[int, Field(ge=0, le=100_000)] = 8
    """Maximum number of concurrent reads of curves and rollouts per token, and separately of exports.
    Additional requests wait. 0 means no limit.
    """

    @field_validator("*", mode="before")
    @classmethod
    def _check_one_line(cls, value: object, info: ValidationInfo) -> object:
        """Raise ValueError if a value has a control character, because scripts and headers contain values.

        Only JSON may have line breaks.
        """
        if (
            info.field_name != "plugin_permissions"
            and isinstance(value, str | Path)
            and has_control(str(value))
        ):
            raise ValueError("it must have no line break and no other control character")
        return value

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(_split_list(value))
        return value

    @field_validator("database_url")
    @classmethod
    def _check_database(cls, url: str) -> str:
        return _check_prefix(DATABASE_PREFIXES, url.replace("postgres://", "postgresql://", 1))

    @field_validator("broker_url")
    @classmethod
    def _check_broker(cls, url: str) -> str:
        return _check_prefix(BROKER_PREFIXES, url)

    @field_validator("artifacts_url")
    @classmethod
    def _check_storage(cls, url: str) -> str:
        scheme, separator, location = url.partition("://")
        if url and not (re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) and separator and location.strip("/")):
            raise ValueError("it must be an address such as s3://bucket/directory or file:///mnt/share")
        if scheme in ("memory", "local", "http", "https") or (
            scheme == "file" and not location.startswith("/")
        ):
            raise ValueError("it must be writable storage with the same address on all machines")
        if re.search(r"::|\.\.|[?#*\[\]{}\s]", url) or not url.isprintable():
            raise ValueError("it must be one plain address, without ?, #, *, brackets, spaces and ..")
        if "@" in location and scheme not in ("abfs", "abfss"):  # their syntax has container@account
            raise ValueError("it must not hold a user or a password: the storage's own variables hold them")
        return url

    @field_validator("trusted_proxies")
    @classmethod
    def _check_addresses(cls, addresses: str) -> str:
        for address in _split_list(addresses):
            if address != "*":
                ipaddress.ip_network(address, strict=False)
        return addresses

    @field_validator("grpolab_webhook_url")
    @classmethod
    def _check_webhook(cls, url: str) -> str:
        return _check_address(url, "https://")

    @field_validator("judge_url", "reward_model_url")
    @classmethod
    def _check_server(cls, url: str) -> str:
        return _check_address(url, "http:// or https://").rstrip("/")

    @field_validator("engine_url")
    @classmethod
    def _check_servers(cls, urls: str) -> str:
        return ",".join(_check_address(url, "http:// or https://").rstrip("/") for url in _split_list(urls))

    @field_validator("engine_python")
    @classmethod
    def _check_program(cls, path: str) -> str:
        if path and not Path(path).is_absolute():
            raise ValueError("it must be an absolute path")
        return path

    @field_validator("engine_arguments")
    @classmethod
    def _check_arguments(cls, text: str) -> str:
        shlex.split(text)
        return text

    @field_validator("openenv_urls")
    @classmethod
    def _check_named_servers(cls, pairs: str) -> str:
        urls: dict[str, str] = {}
        for pair in _split_list(pairs):
            name, _, url = (part.strip() for part in pair.partition("="))
            if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", name) or name in urls or not url:
                raise ValueError("it must be names of a-z, 0-9, _ and -, each once, with addresses: name=url")
            urls[name] = _check_address(url, "http:// or https://").rstrip("/")
        return ",".join(f"{name}={url}" for name, url in urls.items())

    @field_validator("openenv_keys")
    @classmethod
    def _check_named_keys(cls, pairs: str) -> str:
        named_keys = _split_list(pairs)
        if not all(re.fullmatch(r"[a-z0-9_-]+=[!-~]+", pair) for pair in named_keys):
            raise ValueError("it must be names with keys of printable ASCII, without spaces: name=key")
        return ",".join(named_keys)

    @model_validator(mode="after")
    def _check_keys_have_servers(self) -> Self:
        if unknown_names := sorted(self.openenv_secrets.keys() - self.openenv_servers.keys()):
            raise ValueError(
                f"OPENENV_KEYS has a key for {unknown_names[0]}, which OPENENV_URLS does not name"
            )
        return self

    @model_validator(mode="after")
    def _check_node_rank(self) -> Self:
        if self.worker_node_rank >= self.worker_nodes:
            allowed_ranks = f"a group of {self.worker_nodes} has the ranks 0 to {self.worker_nodes - 1}"
            raise ValueError(f"WORKER_NODE_RANK is {self.worker_node_rank}: {allowed_ranks}")
        if self.worker_nodes > 1 and not self.worker_group:
            raise ValueError(f"WORKER_NODES is {self.worker_nodes}: WORKER_GROUP must name the group")
        return self

    @model_validator(mode="after")
    def _check_model_is_named(self) -> Self:
        for url, model in (("judge_url", "judge_model"), ("reward_model_url", "reward_model_name")):
            if getattr(self, url) and not getattr(self, model):
                raise ValueError(f"{url.upper()} is set: {model.upper()} must name the model there")
        return self

    @field_validator("grpolab_webhook_secret")
    @classmethod
    def _check_key(cls, secret: str) -> str:
        if secret:
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
            if not secret.startswith("whsec_") or not 24 <= len(key) <= 64:
                raise ValueError("it must be whsec_ and 24 to 64 bytes in base64")
        return secret

    @field_validator("plugin_permissions")
    @classmethod
    def _check_permissions(cls, text: str) -> str:
        if text:
            PERMISSIONS_ADAPTER.validate_json(text)
        return text

    @cached_property
    def permissions(self) -> dict[str, Permissions]:
        """The permissions of reward plugins, by name."""
        return PERMISSIONS_ADAPTER.validate_json(self.plugin_permissions or "{}")

    @property
    def unserved_rewards(self) -> dict[str, str]:
        """The missing setting of each reward term whose server is not configured."""
        servers = {
            "judge": ("JUDGE_URL", self.judge_url),
            "reward_model": ("REWARD_MODEL_URL", self.reward_model_url),
        }
        return {term: name for term, (name, url) in servers.items() if not url}

    @property
    def served_prices(self) -> dict[str, tuple[float, float]]:
        """The prices of a million input and a million output tokens of each reward term's server."""
        return {
            "judge": (self.judge_input_price, self.judge_output_price),
            "reward_model": (self.reward_model_price, 0.0),
        }

    @property
    def has_prices(self) -> bool:
        """Whether any price is set."""
        return bool(self.slot_price) or any(map(any, self.served_prices.values()))

    @property
    def engine_urls(self) -> list[str]:
        """The addresses of the servers that sample, without a trailing /v1."""
        return [url.removesuffix("/v1") for url in _split_list(self.engine_url)]

    @property
    def openenv_servers(self) -> dict[str, str]:
        """The addresses of the OpenEnv servers, by name."""
        return dict(pair.split("=", 1) for pair in _split_list(self.openenv_urls))

    @property
    def openenv_secrets(self) -> dict[str, str]:
        """The keys of the OpenEnv servers that have one, by name."""
        return dict(pair.split("=", 1) for pair in _split_list(self.openenv_keys))

    @property
    def engine_directory(self) -> Path:
        """Directory through which weights reach the servers that sample."""
        return Path(self.engine_dir).expanduser().resolve() if self.engine_dir else self.state / "engine"

    @property
    def state(self) -> Path:
        """Absolute state directory."""
        return self.state_dir.expanduser().resolve()

    @cached_property
    def effective_database_url(self) -> str:
        """The URL of the database in use, including the default."""
        return self.database_url or f"sqlite:///{self.state / 'grpolab.db'}"

    @property
    def run_dir(self) -> Path:
        """Directory of sockets, locks and process ids."""
        return self.state / "run"

    def artifact_dir(self, run_id: str) -> Path:
        """Return the directory of one run's checkpoints."""
        return self.state / "runs" / run_id


def _split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_prefix(prefixes: tuple[str, ...], url: str) -> str:
    if url and not url.startswith(prefixes):
        raise ValueError(f"it must begin with {', '.join(prefixes[:-1])} or {prefixes[-1]}")
    return url


def _check_address(url: str, prefix: str) -> str:
    try:
        split_url = urlsplit(url)
        split_url.port  # noqa: B018 - raises ValueError
    except ValueError:  # its message contains a part of the address
        raise ValueError(f"it must be an address that begins with {prefix}") from None
    if url and (split_url.scheme not in {"http", "https"} or not split_url.hostname or not url.isprintable()):
        raise ValueError(f"it must be an address that begins with {prefix}")
    if split_url.username or split_url.password or " " in url:
        raise ValueError("it must not hold a user, a password or spaces")
    return url


def service_url(settings: Settings) -> str:
    """Return the address of the service on this machine."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
