"""The pages in docs/ say what the code says, and README stays short."""

import pytest
from pydantic import BaseModel

from backend.base.settings import Settings
from backend.config.fields import sections
from backend.config.metrics import METRICS
from backend.config.objective import Objective
from backend.config.presets import PRESETS
from backend.config.run import RunConfig
from backend.service.docs import api_types
from backend.service.docs import pages as docs
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


def dotted(section: str, model: type[BaseModel]) -> list[str]:
    return [f"{section}.{name}" for name in model.model_fields]


def test_presets_metrics_settings_and_fields_of_a_run_are_in_a_table():
    settings = [name.upper() for name in Settings.model_fields]
    names = [*PRESETS, *METRICS, *settings, *RunConfig.model_fields, *dotted("objective", Objective)]
    assert [name for name in names if f"| `{name}` |" not in TEXT] == []


def test_every_option_of_a_union_is_explained():
    for section in sections().values():
        for name, meaning in section.options.items():
            assert meaning, f"{section.path}: {name}"
            assert f"- `{name}`: " in TEXT


def test_every_field_says_what_it_is():
    rows = [row for section in sections().values() for row in section.rows]
    assert [row.path for row in rows if not row.meaning] == []


def test_a_field_of_several_options_is_one_row_with_its_options():
    rows = {row.path: options for row, options in sections()["objective.kl"].rows.items()}
    assert list(rows["objective.kl.coef"]) == ["k3", "k2", "k1", "r_k3", "r_k1"]
    assert list(rows["objective.kl.place"]) == ["k1"]


def test_a_field_shows_its_default_and_its_range():
    [lr] = [row for row in sections()["optimizer"].rows if row.path == "optimizer.lr"]
    assert (lr.default, lr.values, lr.meaning) == ("0.0003", "above 0, at most 1", "Learning rate.")


def test_a_table_without_a_place_is_an_error():
    with pytest.raises(SystemExit, match="0 places for the table presets"):
        docs.with_tables({docs.FOLDER / "empty.md": "# Empty"})


def test_a_place_that_nothing_fills_is_an_error():
    page = docs.FOLDER / "methods.md"
    with pytest.raises(SystemExit, match="nothing writes the table nonsense"):
        docs.with_tables(PAGES | {page: PAGES[page] + "<!-- nonsense -->\n<!-- /nonsense -->\n"})
