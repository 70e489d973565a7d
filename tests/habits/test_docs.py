"""Tests that the pages in docs/ agree with the code, and that README stays short."""

from backend.service.docs import api_types
from backend.service.docs import pages as docs
from tests.faults.ledger import LEDGER_PATH, read, table

PAGES = docs.pages()


def test_the_generated_tables_are_up_to_date():
    assert docs.update_tables(PAGES) == PAGES, "run `make docs`"


def test_the_types_of_the_frontend_match_the_api():
    assert api_types.FILE.read_text(encoding="utf-8") == api_types.declarations(), "run `make docs`"


def test_the_table_of_faults_matches_the_ledger():
    results = LEDGER_PATH.with_name("results.md").read_text(encoding="utf-8")
    assert table(read(LEDGER_PATH)) == results, "play a round, or write table(read(LEDGER)) there"
