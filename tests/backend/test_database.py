"""The two databases agree on what the code relies on."""

from sqlalchemy import select, text

from backend.database import db_now
from backend.models import Experiment


def test_the_databases_clock_is_utc_and_moves(database):
    with database.sessions() as session:
        first, second = (session.execute(select(db_now())).scalar_one() for _ in range(2))
    assert second >= first > 1.7e9


def test_an_uncommitted_row_is_not_there_for_others(database):
    with database.sessions() as session:
        session.add(Experiment(name="half", request={}, request_hash=""))
        session.flush()
        session.rollback()
    with database.sessions() as session:
        assert session.scalars(select(Experiment)).all() == []


def test_each_test_gets_an_empty_database(session):
    session.add(Experiment(name="mine", request={}, request_hash=""))
    session.commit()
    assert session.execute(text("select count(*) from experiment")).scalar_one() == 1
