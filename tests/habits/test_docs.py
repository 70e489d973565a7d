"""The pages in docs/ say what the code says, and README stays short."""

import pytest

from backend import api_types, docs
from backend.config.metrics import METRICS
from backend.config.objective import Objective
from backend.config.presets import PRESETS
from backend.config.run import RunConfig
from backend.settings import Settings
from tests.faults.ledger import LEDGER, read, table

PAGES = docs.pages()
TEXT = "\n".join(PAGES.values())


def test_the_generated_tables_are_up_to_date():
    assert docs.with_tables(PAGES) == PAGES, "run `make docs`"


def test_the_types_of_the_frontend_are_those_of_the_api():
    assert api_types.FILE.read_text(encoding="utf-8") == api_types.declarations(), "run `make docs`"


def test_the_table_of_faults_is_that_of_the_ledger():
    results = LEDGER.with_name("results.md").read_text(encoding="utf-8")
    assert table(read(LEDGER)) == results, "play a round, or write table(read(LEDGER)) there"


@pytest.mark.parametrize("name", [*PRESETS, *METRICS, *(name.upper() for name in Settings.model_fields)])
def test_presets_metrics_and_settings_are_in_a_table(name):
    assert f"| `{name}` |" in TEXT


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
    with pytest.raises(SystemExit, match="0 places for the table presets"):
        docs.with_tables({docs.FOLDER / "empty.md": "# Empty"})


def test_a_place_that_nothing_fills_is_an_error():
    page = docs.FOLDER / "methods.md"
    with pytest.raises(SystemExit, match="nothing writes the table nonsense"):
        docs.with_tables(PAGES | {page: PAGES[page] + "<!-- nonsense -->\n<!-- /nonsense -->\n"})


def test_readme_is_read_in_one_sitting():
    assert len((docs.ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 250
