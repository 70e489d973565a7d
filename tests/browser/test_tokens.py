"""Pure parts of the token view: scales of colours, derived values, pieces, addresses."""

from itertools import pairwise

TOKENS = "lib/text/tokens.js"


def test_scales_with_a_sign_have_two_halves(in_browser):
    function = """(t) => [
        t.levelOf('ratio', 2), t.levelOf('ratio', 0.5), t.levelOf('ratio', 1), t.levelOf('clipped', -1),
        t.levelOf('clipped', 2), t.levelOf('loss', -1), t.levelOf('loss', 1e-3), t.levelOf('loss', 1e-7),
        t.levelOf('kl', -1), t.levelOf('correction', 0), t.levelOf('advantage', 'NaN'),
    ].concat([t.levelClass(-3), t.levelClass(0), t.levelClass(null)])"""
    assert in_browser(TOKENS, function) == [
        8, -8, 0, -8, 4, -8, 4, 0, 0, -8, None, "cold-3", "heat-0", "is-masked",
    ]  # fmt: skip


def test_mismatch_is_the_trainer_less_the_sampler(in_browser):
    function = """(t) => t.valuesOf({ tokens: ['a', 'b'], advantage: 1, arrays: { logprob: [-1, 'NaN'],
        policy_logprob: [-0.5, -1], old_logprob: [-0.75, -1] } }, 'mismatch')"""
    assert in_browser(TOKENS, function) == [0.25, "NaN"]


def test_a_long_completion_is_drawn_in_pieces(in_browser):
    pieces = in_browser(TOKENS, "(t) => t.chunksOf(Array(100000).fill('word '), 20000)")
    assert pieces[0][0] == 0
    assert pieces[-1][1] == 100_000
    assert all(end == begin for (_, end), (begin, _) in pairwise(pieces))
    assert max(end - begin for begin, end in pieces) <= 4000


def test_an_address_of_a_token_is_read_or_ignored(in_browser):
    function = "(t) => ['2.17', '0.0', 'x', '1.2.3', '-1.4', ''].map(t.readPlace)"
    assert in_browser(TOKENS, function) == [[2, 17], [0, 0], None, None, None, None]
