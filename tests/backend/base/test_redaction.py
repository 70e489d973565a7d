"""Tests of the redaction of secrets, from the moment they are known."""

import pytest

from backend.base.redaction import REDACTED, learn_secrets, redact, redact_document
from backend.base.settings import Settings
from backend.http.auth.permissions import Role
from backend.http.auth.tokens import read_or_create_token
from tests.api_client import client_of_service


@pytest.fixture
def new_settings(state_dir):
    """An installation without tokens."""
    return Settings(state_dir=state_dir, models_dir=state_dir / "models", datasets_dir=state_dir / "datasets")


def launch_named(client, name):
    return client.post("/api/v1/experiments", json={"name": f"my {name}", "variants": [{"name": "a"}]})


@pytest.mark.parametrize("role", Role)
def test_a_token_made_after_the_start_is_refused_as_an_experiment_name(new_settings, sqlite_url, role):
    with client_of_service(new_settings, sqlite_url, token="") as client:
        assert client.get("/api/v1/runs").status_code == 401
        token = read_or_create_token(new_settings, role)
        client.headers["Authorization"] = f"Bearer {read_or_create_token(new_settings, Role.OPERATOR)}"
        response = launch_named(client, token)
        assert (response.status_code, token in response.text) == (422, False)
        assert "looks like a secret" in response.text
        assert client.get("/api/v1/runs").json()["items"] == []


def test_a_replaced_token_is_known_as_soon_as_its_file_changes(new_settings, sqlite_url):
    with client_of_service(new_settings, sqlite_url, token="") as client:
        first_token = read_or_create_token(new_settings, Role.OPERATOR)
        assert launch_named(client, first_token).status_code == 401
        assert redact(first_token) == REDACTED
        draft = new_settings.state / "draft"
        draft.write_text("a-token-that-the-operator-chose\n")
        draft.replace(new_settings.state / "token")
        client.headers["Authorization"] = "Bearer a-token-that-the-operator-chose"
        for token in ("a-token-that-the-operator-chose", first_token):
            assert launch_named(client, token).status_code == 422
        (new_settings.state / "token").write_text("another-one-in-the-same-file")
        client.headers["Authorization"] = "Bearer another-one-in-the-same-file"
        assert launch_named(client, "another-one-in-the-same-file").status_code == 422


def test_tokens_from_the_environment_are_known(state_dir):
    settings = Settings(
        state_dir=state_dir,
        grpolab_token="chosen-by-the-operator",
        grpolab_viewer_token="given-to-the-viewers",
    )
    learn_secrets(settings, {})
    assert redact("chosen-by-the-operator given-to-the-viewers") == f"{REDACTED} {REDACTED}"


def test_nothing_of_a_secret_stays_readable_if_another_secret_is_its_prefix(new_settings):
    learn_secrets(new_settings, {"API_KEY": "tomorrow-1234", "OTHER_API_KEY": "tomorrow-1234-and-more"})
    assert redact("the key is tomorrow-1234-and-more.") == f"the key is {REDACTED}."


SECRET_LOOKALIKES = (
    "hf_" + "a" * 34,
    "sk-" + "b-" * 15,
    f"writer.me.{'0' * 64}",
    f"1234567890.{'f' * 64}",
    f"1234567890.{'n' * 20}.{'f' * 64}",
)


def nest_document(document, depth):
    for _ in range(depth):
        document = {"a": [document]}
    return document


def test_a_deeply_nested_document_is_redacted_without_changing_the_original():
    document = nest_document(SECRET_LOOKALIKES[0], 5_000)
    redacted_document = redact_document(document)
    for _ in range(5_000):
        document, redacted_document = document["a"][0], redacted_document["a"][0]
    assert (document, redacted_document) == (SECRET_LOOKALIKES[0], REDACTED)


@pytest.mark.parametrize("secret", SECRET_LOOKALIKES)
@pytest.mark.parametrize("before", ["", "x" * 99_990, "." * 200_010, "key="])
def test_a_secret_pattern_is_recognised_at_any_position(secret, before):
    assert redact(f"{before} {secret} {secret}.") == f"{before} {REDACTED} {REDACTED}."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hunter2@db/x", f"postgresql://{REDACTED}@db/x"),
        ("task-specific-reward-function", "task-specific-reward-function"),
        ("whf_" + "a" * 34, "whf_" + "a" * 34),
        ("91234567890." + "f" * 64, "91234567890." + "f" * 64),
        ("hf_" + "a" * 200_000 + " b", f"{REDACTED} b"),
    ],
)
def test_text_that_only_resembles_a_secret_stays(text, shown):
    assert redact(text) == shown
