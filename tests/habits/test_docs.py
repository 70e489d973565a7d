"""Tests that generated tables and types agree with the code."""

from backend.service.docs import api_types
from backend.service.docs import pages as docs
from tests.faults.ledger import LEDGER_PATH, format_table, read_ledger

PAGES = docs.pages()


def test_the_generated_tables_are_up_to_date():
    assert docs.update_tables(PAGES) == PAGES, "run `make docs`"


def test_the_types_of_the_frontend_match_the_api():
    assert api_types.FILE.read_text(encoding="utf-8") == api_types.declarations(), "run `make docs`"


def test_the_table_of_faults_matches_the_ledger():
    results = LEDGER_PATH.with_name("results.md").read_text(encoding="utf-8")
    assert format_table(read_ledger(LEDGER_PATH)) == results, (
        "the table is out of date: run a round of faults, or write `format_table(read_ledger(LEDGER_PATH))`"
    )
