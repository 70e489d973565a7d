"""The benchmark of curves: its data, and whether its counts of what survives are right."""

import math
import struct

import pytest

from benchmarks.curves.data import SPIKE, values_of
from benchmarks.curves.peers import KINDS

pytestmark = pytest.mark.nightly


def test_each_curve_has_one_spike_and_one_nan():
    curve = values_of(3, 300)
    assert (curve.count(SPIKE), sum(map(math.isnan, curve))) == (1, 1)
    assert len(curve) == 300


def test_curves_are_the_same_each_time_and_differ_between_runs():
    assert values_of(0, 200)[:50] == values_of(0, 200)[:50]
    assert values_of(0, 200)[:50] != values_of(1, 200)[:50]


def test_what_survives_is_counted_in_every_encoding():
    assert KINDS["mlflow"].count(b'[{"value": 1000.0}, {"value": "NaN"}, {"value": 0.5}]') == (1, 1)
    assert KINDS["aim"].count(struct.pack("<3d", SPIKE, math.nan, 0.5)) == (1, 1)


def test_a_peer_is_asked_as_its_page_asks():
    raw = KINDS["tensorboard"].chart(["a", "b"]).raw(1234)
    assert raw.startswith("POST /data/plugin/scalars/scalars_multirun HTTP/1.1\r\n")
    assert raw.endswith("\r\n\r\ntag=reward%2Fmean&runs=a&runs=b")
    assert f"Content-Length: {len('tag=reward%2Fmean&runs=a&runs=b')}" in raw
