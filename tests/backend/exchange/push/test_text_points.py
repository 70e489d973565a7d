"""Tests that metrics of pushed texts read only a little of a long prompt."""

import pytest

from backend.rollouts import script
from backend.rollouts.foreign_metrics import SCRIPT_CHARS, foreign_metrics
from backend.rollouts.text_metrics import WrittenCompletion


@pytest.fixture
def looked_up_letters(monkeypatch):
    """The letters whose script was looked up."""
    letters = []
    look_up = script._script

    def noting(letter):
        letters.append(letter)
        return look_up(letter)

    monkeypatch.setattr(script, "_script", noting)
    return letters


def test_only_the_end_of_a_one_megabyte_prompt_is_read(looked_up_letters):
    """The prompt is read for each of up to 1,024 completions and would block other requests."""
    prompt = "a" * 1_000_000 + "\u4e00" * SCRIPT_CHARS
    metrics = foreign_metrics([WrittenCompletion(prompt, "\u4e00\u4e01", is_truncated=True)] * 8)
    assert metrics["text/unusual_script_frac"] == 0  # the end of the prompt and the text are Chinese
    assert len(looked_up_letters) <= 8 * 2 * SCRIPT_CHARS
