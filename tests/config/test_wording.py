"""Messages of validation in plain words."""

import pytest

from backend.base.wording import plain_message


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("Input should be greater than or equal to 0", "must be at least 0"),
        ("Input should be less than or equal to 200", "must be at most 200"),
        ("Input should be greater than 0", "must be greater than 0"),
        ("Input should be a valid integer", "must be a whole number"),
        ("Input should be a valid string", "must be a string"),
        ("Value error, Seeds differ", "seeds differ"),
    ],
)
def test_a_message_says_what_a_value_must_be(message, plain):
    assert plain_message(message) == plain
