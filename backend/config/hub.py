"""The Hugging Face hub's answer to one question: which commit of a dataset is the newest."""

import json
import os
import re
from http.client import HTTPException
from threading import Condition
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from cachetools import TTLCache, cached

PARQUET_BRANCH = "refs/convert/parquet"
"""The branch in which the hub keeps every public dataset as `<subset>/<split>/*.parquet`."""

ASK_SECONDS = 10.0
KEPT_SECONDS = 300.0
"""How long an answer is used again: the form validates at every key press."""

MOST_ANSWERS = 64

MOST_BYTES = 50_000_000
COMMIT = re.compile(r"[0-9a-f]{40}")


class HubError(ValueError):
    """The hub could not be asked, or has no such dataset."""


@cached(TTLCache(MOST_ANSWERS, KEPT_SECONDS), condition=Condition())
def newest_commit(dataset: str) -> str:
    """The commit of the dataset's Parquet branch; HubError says why there is none to be had."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    if not endpoint.startswith(("https://", "http://")):
        raise HubError(f"HF_ENDPOINT: expected an address with https://, got {endpoint[:60]!r}")
    address = f"{endpoint}/api/datasets/{quote(dataset)}/revision/{quote(PARQUET_BRANCH, safe='')}"
    try:
        with urlopen(address, timeout=ASK_SECONDS) as response:  # noqa: S310 - the scheme is checked above
            commit = json.loads(response.read(MOST_BYTES))["sha"]
    except HTTPError as error:
        error.close()
        if error.code in (401, 403, 404):
            raise HubError(f"the Hugging Face hub has no public dataset {dataset!r} in Parquet") from error
        raise HubError(
            f"the Hugging Face hub responded with {error.code}: try again, or name a revision"
        ) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise HubError(
            f"the Hugging Face hub is out of reach ({reason}): name a revision that workers have already "
            "fetched, or upload the dataset as a file"
        ) from error
    except (ValueError, KeyError, TypeError):
        raise HubError("the Hugging Face hub sent an invalid response") from None
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise HubError("the Hugging Face hub sent an invalid response")
    return commit
