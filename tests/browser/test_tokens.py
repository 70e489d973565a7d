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


def test_alternatives_are_named_as_text_and_what_was_cut_off_is_left_out(in_browser):
    function = """(t) => [0, 1, 2].map((at) => t.alternativesAt({ token_ids: [5, 7, 9], alternatives: {
        ids: [[5, 6], [6, 7]], logprobs: [[Math.log(0.75), Math.log(0.25)], [Math.log(0.5), '-Infinity']],
        strings: { 6: '<b>\\n', 7: ' ' } } }, at).map((each) => Object.values(each)))"""
    assert in_browser(TOKENS, function) == [
        [[5, None, "75.0 %", True], [6, "<b>⏎", "25.0 %", False]],
        [[6, "<b>⏎", "50.0 %", False]],
        [],
    ]
    assert in_browser(TOKENS, "(t) => t.alternativesAt({ token_ids: [5], alternatives: null }, 0)") == []
