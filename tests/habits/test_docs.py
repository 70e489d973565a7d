"""README says what the code says."""

import pytest

from backend import docs
from backend.config.metrics import METRICS
from backend.config.objective import Objective
from backend.config.presets import PRESETS
from backend.config.run import RunConfig
from backend.settings import Settings
from tests.faults.ledger import LEDGER, read, table

README = docs.README.read_text(encoding="utf-8")


def test_the_generated_tables_are_up_to_date():
    assert docs.with_tables(README) == README, "run `make docs`"


def test_the_table_of_faults_is_that_of_the_ledger():
    results = LEDGER.with_name("results.md").read_text(encoding="utf-8")
    assert table(read(LEDGER)) == results, "play a round, or write table(read(LEDGER)) there"


@pytest.mark.parametrize("name", [*PRESETS, *METRICS, *(name.upper() for name in Settings.model_fields)])
def test_presets_metrics_and_settings_are_in_a_table(name):
    assert f"| `{name}` |" in README


def test_every_part_of_the_objective_is_a_knob_in_the_table():
    places = {path.split(".")[1].partition("[")[0] for _, path in docs.KNOBS if path.startswith("objective.")}
    assert places == set(Objective.model_fields)


@pytest.mark.parametrize("section", ["filters", "length", "updates"])
def test_every_field_that_a_preset_may_set_is_a_knob_in_the_table(section):
    places = {
        path.removeprefix(f"{section}.").partition("[")[0].partition(".")[0]
        for _, path in docs.KNOBS
        if path.startswith(section)
    }
    assert places == set(RunConfig.model_fields[section].annotation.model_fields)


def test_a_table_without_a_place_is_an_error():
    with pytest.raises(SystemExit, match="no place for the table presets"):
        docs.with_tables("# Empty")
