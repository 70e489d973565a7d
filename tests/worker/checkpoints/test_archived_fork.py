"""A fork of a run that came from an archive trains as a fork of the run itself."""

import io

import pytest

from backend.config.merge import resolve
from backend.exchange.archives.save import archive_run
from backend.exchange.imports.importing import ImportRequest
from backend.exchange.imports.run_archive.store import import_any
from tests.worker.training.test_trainer import SMALL, queued, series, sessions, train
from worker.outcome import Outcome

pytestmark = pytest.mark.nightly

__all__ = ["queued", "sessions", "train"]


def test_a_fork_of_an_imported_archive_continues_bit_by_bit(sessions, queued, train, settings):
    config = resolve(SMALL)
    parent = queued(config)
    train(parent, config)
    content = io.BytesIO(b"".join(archive_run(sessions, settings, parent, checkpoints=True).content))
    answer = import_any(sessions, settings, content, ImportRequest("run.tar"))
    assert series(sessions, answer.run) == series(sessions, parent)
    fork = queued(config, parent=answer.run, step=2)
    assert train(fork, config) == Outcome("finished")
    expected = {
        metric: {step: value for step, value in values.items() if step > 2}
        for metric, values in series(sessions, parent).items()
    }
    assert series(sessions, fork) == {metric: values for metric, values in expected.items() if values}
