"""Upload of an exported model to the Hugging Face hub.

    python -m worker.checkpoints.push DIRECTORY OWNER/NAME [--public] [--existing] < TOKEN

The token is read from standard input and passed to the hub's client only for these calls. The repository is
private by default. The upload is one commit, so either all files are uploaded or none.
"""

import argparse
import os
import sys
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

FILE_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "README.md"]
"""Patterns of an export's files. Nothing else in the directory is uploaded."""


class PushFailed(Exception):
    """Raised if a push failed for a reason that the user can correct."""


def main() -> None:
    """Push with the command line's arguments, and print the address."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.checkpoints.push", description=__doc__.split("\n")[0]
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("repository", help="owner/name")
    parser.add_argument("--public", action="store_true")
    parser.add_argument("--existing", action="store_true", help="commit to a repository that is there")
    arguments = parser.parse_args()
    token = sys.stdin.readline().strip()
    try:
        options = {"public": arguments.public, "allow_existing": arguments.existing}
        address = push(arguments.directory, arguments.repository, token, **options)
        print(_printable(address))  # noqa: T201 - the result of the command
    except PushFailed as error:
        sys.exit(f"push: {_printable(str(error))}")


def push(directory: Path, repository: str, token: str, *, public: bool, allow_existing: bool) -> str:
    """Upload the files of an export in one commit and return the repository's address. Raise PushFailed."""
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    api = HfApi(token=token)
    try:
        address = api.create_repo(repository, private=not public, exist_ok=allow_existing)
        api.upload_folder(
            repo_id=repository,
            folder_path=directory,
            allow_patterns=FILE_PATTERNS,
            commit_message="Upload model",
        )
    except HFValidationError as error:
        raise PushFailed(
            f"{repository!r:.100} is not the name of a repository: {_first_line(error)}"
        ) from None
    except (LocalTokenNotFoundError, HfHubHTTPError) as error:
        raise PushFailed(_refusal(error, repository)) from None
    except (httpx2.HTTPError, OSError) as error:
        reason = _first_line(error) or type(error).__name__
        raise PushFailed(f"the hub at {constants.ENDPOINT} cannot be reached: {reason}") from None
    return str(address)


def _refusal(error: Exception, repository: str) -> str:
    """Return a sentence for an error of the hub."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return "the hub does not accept the token: it is wrong or has expired"
    if status == 403:
        return f"the token may not write to {repository}: it needs the permission to write"
    if status == 409:
        return f"{repository} exists already: choose another name, or add --existing to commit to it"
    return f"the hub has refused the upload: {_first_line(error)}"


def _printable(text: str) -> str:
    """Return a text of the hub or the user without terminal control sequences."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


if __name__ == "__main__":
    main()
