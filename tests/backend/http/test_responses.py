"""Tests of JSON responses with any content that a run may hold."""

import json
import math

import numpy as np
import orjson

from backend.http.responses import Json

CONTENT = {
    "values": np.array([1.5, math.nan, math.inf]),
    "nested": [{"mean": -math.inf, "count": np.int64(3), 7: (True, None)}],
    "raw": orjson.Fragment(b'{"a": [1]}'),
}


def test_a_lone_surrogate_changes_only_itself():
    plain_document = json.loads(bytes(Json(CONTENT).body))
    surrogate_document = json.loads(bytes(Json(CONTENT | {"text": "a\ud800"}).body))
    assert surrogate_document == plain_document | {"text": "a\ud800"}
    assert plain_document["values"] == [1.5, None, None]
