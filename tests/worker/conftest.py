"""The tiny policy for tests that do not change it."""

import pytest

from backend.base.settings import Settings
from backend.config.sections import PolicyConfig
from worker.policy.model import load_policy


@pytest.fixture(scope="module")
def tiny():
    return load_policy(PolicyConfig(), Settings())
