"""Tests that computations of the pages agree with Python: with the service, and with other parsers."""

import csv
import io
import json
import math
import subprocess
from itertools import product
from types import SimpleNamespace

import pytest
import yaml

from backend.metrics.grouping import group_runs
from backend.metrics.statistics import t_975
from backend.storage.models import COLOUR_COUNT

YAML_MODULE = "lib/text/yaml.js"
HOSTILE_TEXT = '<img src=x onerror="alert(1)"><script>alert(2)</script>\u202egnp.exe\u200b\x07 \\boxed{233}'


def test_the_palette_has_the_length_that_the_service_assumes(in_node):
    lengths = in_node("lib/colours.js", "c => [c.PALETTES.light.length, c.PALETTES.dark.length]")
    assert lengths == [COLOUR_COUNT] * 2


def test_the_service_and_the_page_agree_on_students_t(in_node):
    freedoms = [1, 2, 4, 17, 30, 31, 200]
    quantiles = in_node("lib/runs/stats.js", "(s, freedoms) => freedoms.map(s.t95)", freedoms)
    assert quantiles == pytest.approx([t_975(freedom) for freedom in freedoms], rel=2e-3)


def test_the_page_and_the_service_group_the_same_runs_into_a_mean(in_node):
    kinds = product(["one", "two"], [0.1, 0.2], [None, 5, 8], range(2))
    runs = [
        {
            "id": f"{number:02}",
            "variant": "grpo",
            "experiment_name": experiment,
            "config_hash": f"{lr}".ljust(64, "0"),
            "config": {"lr": lr, "seed": seed},
            "fork_step": step,
        }
        for number, (experiment, lr, step, seed) in enumerate(kinds)
    ]
    of_page = "(g, runs) => g.makeGroups(runs).map(({ runs }) => runs.map(({ id }) => id))"
    rows = [SimpleNamespace(**run, parent_run="p", name=run["id"]) for run in runs]
    of_service = group_runs(rows, {}, ["variant"])
    assert in_node("lib/runs/groups.js", of_page, runs) == list(of_service.values())


@pytest.mark.parametrize("name", ["=1+1", "+cmd|' /C calc'!A0", "@x", "-2+3", 'a,"b"\n=c', HOSTILE_TEXT])
def test_a_hostile_name_is_not_a_formula_in_the_table(in_node, name):
    call = """(r, name) => {
        const point = { x: [0], steps: [0], values: [1], non_finite: [], raw_points: 1 };
        const lines = [{ series: { run: name, name, metric: 'm', ...point }, name, role: 'main' }];
        const table = r.makeTable(r.readLines(lines, 0, name),
            { metric: 'm', unit: null, xKind: 'step', smoothing: 0 });
        const curves = r.curvesAsCsv([{ lines, metric: 'm' }], 'step');
        return [r.tableAsCsv(table), r.tableAsText(table), curves]; }"""
    files = in_node("lib/reading.js", call, name)
    for text, delimiter in zip(files, ",\t,", strict=True):
        cells = [cell for row in csv.reader(io.StringIO(text), delimiter=delimiter) for cell in row]
        assert any(name in cell for cell in cells)
        assert not any(cell[:1] in "=+@-" for cell in cells if cell and not is_number(cell))


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) or True
    except ValueError:
        return False


def test_the_command_is_quoted_for_a_shell(in_node):
    body = {"name": 'it\'s "quoted" $HOME `x` \\', "base": {}, "variants": [], "seeds": [0]}
    call = "(f, body) => f.makeCommand('http://127.0.0.1:8000', { path: '/experiments', body })"
    argument = in_node("lib/launch/form.js", call, body).partition("-d ")[2]
    command = ["sh", "-c", f"printf %s {argument}"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == body


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": {"c": [1, 2.5, -3], "d": []}, "e": {}, "f": None, "g": True},
        {"list": [{"name": "x", "inner": {"y": [{"z": "w"}]}}, {"name": "q"}], "plain": [[1, 2], ["a", "b"]]},
        {
            "yes": "no",
            "on": "true",
            "null": "null",
            "0x": "12",
            "empty": "",
            "tilde": "~",
            "date": "2026-11-21",
        },
        {
            "colon": "a: b",
            "hash": "a #b",
            "dash": "- a",
            "quote": "\"'",
            "lines": "a\nb\tc",
            "emoji": "😀 é",
            "nel": "\x85\u2028",
        },
        {"small": 1e-08, "large": 1e22, "exact": 0.1, "int": 1234567890123},
    ],
    ids=["kinds", "lists", "words", "signs", "numbers"],
)
def test_yaml_is_read_by_another_parser(in_node, value):
    assert yaml.safe_load(in_node(YAML_MODULE, "(y, value) => y.toYaml(value)", value)) == value
