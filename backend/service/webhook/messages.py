"""Bodies and signatures of webhooks: Standard Webhooks in JSON, and messages for Slack and Discord."""

import base64
import hashlib
import hmac
import re
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import orjson

from backend.base.redaction import redact, redact_document
from backend.http.paging import iso_time
from backend.storage.models import Event

Format = Literal["json", "slack", "discord"]

UNSIGNED = "GRPOLAB_WEBHOOK_SECRET is empty: a webhook in JSON is sent only with a signature"

MAX_CHARACTERS = 1_900
"""Maximum number of characters of a chat message; Discord refuses more than 2,000."""

SUPPRESS_EMBEDS = 4
"""Message flag of Discord that disables link previews."""


class RunNames(NamedTuple):
    """Properties of a run that identify it to a reader."""

    id: str
    name: str
    experiment: str
    variant: str
    seed: int
    status: str
    verdict: str | None


def choose_format(url: str, requested_format: str) -> Format:
    """Return the requested format, or else the format for the host of the URL."""
    if requested_format in {"json", "slack", "discord"}:
        return requested_format  # type: ignore[return-value]
    url_parts = urlsplit(url)
    if url_parts.hostname == "hooks.slack.com":
        return "slack"
    is_discord = url_parts.hostname in {"discord.com", "discordapp.com"} and url_parts.path.startswith(
        "/api/webhooks/"
    )
    return "discord" if is_discord else "json"


def make_body(event: Event, run: RunNames | None, form: Format) -> bytes:
    """Return the body of the request; markup and mentions in names and messages are disabled."""
    if form == "json":
        return orjson.dumps(_document(event, run))
    text = redact(f"{_title(run)}{event.message}")[:MAX_CHARACTERS]
    if form == "slack":
        escaped_text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return orjson.dumps({"text": escaped_text, "mrkdwn": False, "link_names": False})
    escaped_markdown = re.sub(r"([\\`*_~|<>\[\]()#:@])", r"\\\1", text)[:MAX_CHARACTERS]
    return orjson.dumps(
        {"content": escaped_markdown, "allowed_mentions": {"parse": []}, "flags": SUPPRESS_EMBEDS}
    )


def _title(run: RunNames | None) -> str:
    return f"{run.name} ({run.variant}, seed {run.seed}): " if run else ""


def _document(event: Event, run: RunNames | None) -> dict[str, Any]:
    data = {
        "event": event.id,
        "run": run._asdict() if run else None,
        "attempt": event.attempt,
        "step": event.step,
        "level": event.level,
        "message": event.message,
        "details": event.data,
    }
    redacted_data: dict[str, Any] = redact_document(data)
    return {"type": event_type(event), "timestamp": iso_time(event.at), "data": redacted_data}


def event_type(event: Event) -> str:
    """Return the type by which receivers filter, such as `diagnosis.verdict` or `lifecycle.finished`."""
    if event.kind == "diagnosis":
        return "diagnosis.warning" if "warning" in event.data else "diagnosis.verdict"
    return f"{event.kind}.{event.data['to']}" if event.data.get("to") else event.kind


def make_headers(event_id: int, body: bytes, secret: str, now: float) -> dict[str, str]:
    """Return headers with the signature of Standard Webhooks 1.0, or without a signature if there is no
    secret.
    """
    headers = {"Content-Type": "application/json", "User-Agent": "grpolab-webhook"}
    message_id, timestamp = f"evt_{event_id}", str(int(now))
    headers |= {"webhook-id": message_id, "webhook-timestamp": timestamp}
    if secret:
        headers["webhook-signature"] = signature(secret, message_id, timestamp, body)
    return headers


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the HMAC-SHA256 of `id.timestamp.body` as `v1,<base64>`."""
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    content = b".".join([message_id.encode(), timestamp.encode(), body])
    return "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
