"""Pure parts of the pages that show what a policy wrote."""

import pytest

TOKENS = "lib/text/tokens.js"
VISIBLE = "lib/text/visible.js"
ROLLOUTS = "lib/rollouts.js"
LOG = "lib/text/log.js"


def completion(**changes):
    plain = {
        "id": "c", "text": "x", "reward": 1.0, "rewards": {"correctness": 1.0}, "advantage": 0.5,
        "tokens": 1, "finish_reason": "stop", "correct": True, "flags": [],
    }  # fmt: skip
    return plain | changes


def shown(in_browser, text):
    pieces = in_browser(VISIBLE, "(v, text) => v.visiblePieces(text)", text)
    return [(piece["text"], piece["isCode"]) for piece in pieces]


def test_plain_text_stays_as_it_is(in_browser):
    text = "<b>85+60</b> = 145\n\tso \\boxed{145} é 漢字 😀 שלום"
    assert shown(in_browser, text) == [(text, False)]


@pytest.mark.parametrize(
    ("character", "code"),
    [
        ("\u202e", "U+202E"),
        ("\u2066", "U+2066"),
        ("\u200b", "U+200B"),
        ("\u200d", "U+200D"),
        ("\ufeff", "U+FEFF"),
        ("\u0000", "U+0000"),
        ("\u001b", "U+001B"),
        ("\r", "U+000D"),
        ("\u0085", "U+0085"),
        ("\u00ad", "U+00AD"),
        ("\u2028", "U+2028"),
        ("\U000e0041", "U+E0041"),
    ],
)
def test_what_would_be_invisible_or_reorder_text_shows_its_code_point(in_browser, character, code):
    assert shown(in_browser, f"a{character}b") == [("a", False), (code, True), ("b", False)]


def test_half_a_surrogate_pair_shows_its_code_point(in_browser):
    pieces = in_browser(VISIBLE, "(v) => v.visiblePieces('a' + String.fromCharCode(0xd83d) + 'b')")
    assert [piece["text"] for piece in pieces] == ["a", "U+D83D", "b"]


def test_a_text_is_never_cut_inside_a_character(in_browser):
    assert in_browser(TOKENS, "(t) => [t.startOf('a😀b', 2), t.startOf('a😀b', 3), t.startOf('ab', 9)]") == [
        "a",
        "a😀",
        "ab",
    ]


@pytest.mark.parametrize(
    ("by", "value", "level"),
    [
        ("logprob", 0, 0),
        ("logprob", -2.5, 4),
        ("logprob", -5, 8),
        ("logprob", -80, 8),
        ("logprob", "-Infinity", 8),
        ("logprob", None, None),
        ("logprob", "NaN", None),
        ("entropy", 0, 0),
        ("entropy", 2.5, 8),
        ("entropy", None, None),
    ],
)
def test_colours_mean_the_same_in_every_completion(in_browser, by, value, level):
    assert in_browser(TOKENS, "(t, [by, value]) => t.levelOf(by, value)", [by, value]) == level


def test_a_masked_token_has_no_value_whatever_is_stored(in_browser):
    function = """(t) => [t.valueAt([-1, -2], [0, 1], 0), t.valueAt([-1, -2], [0, 1], 1),
        t.valueAt([-1], undefined, 0), t.valueAt(undefined, undefined, 0)]"""
    assert in_browser(TOKENS, function) == [None, -2, -1, None]


@pytest.mark.parametrize(
    ("logprob", "text"), [(0, "100 %"), (-0.0001, "> 99.9 %"), (-0.693147, "50.0 %"), (-16, "1.1e−7")]
)
def test_probabilities_are_readable_down_to_the_smallest(in_browser, logprob, text):
    assert in_browser(TOKENS, "(t, value) => t.probabilityText(value)", logprob) == text


def test_a_group_is_useful_when_its_rewards_differ(in_browser):
    function = """(r, groups) => groups.map((group) => r.groupFacts(group))
        .map(({ mean, right, useful }) => [mean, right, useful])"""
    right, wrong = completion(), completion(reward=0.0, correct=False)
    groups = [
        {"completions": members, "reward_mean": None, "reward_std": None}
        for members in ([right, wrong], [wrong, wrong])
    ]
    assert in_browser(ROLLOUTS, function, groups) == [[0.5, 1, True], [0, 0, False]]


def test_filters_join_and_groups_without_a_match_drop_out(in_browser):
    cut = completion(correct=False, finish_reason="length", reward=0.2, flags=["truncated", "wrong"])
    groups = [
        {"id": "a", "completions": [completion(), cut]},
        {"id": "b", "completions": [completion(correct=False, reward=0.0)]},
    ]
    function = """(r, [groups, filter, least]) =>
        r.chosenGroups(groups, { filter, least }, 'recorded').map(({ id }) => id)"""
    assert in_browser(ROLLOUTS, function, [groups, [], None]) == ["a", "b"]
    assert in_browser(ROLLOUTS, function, [groups, ["wrong"], None]) == ["a", "b"]
    assert in_browser(ROLLOUTS, function, [groups, ["wrong", "truncated"], None]) == ["a"]
    assert in_browser(ROLLOUTS, function, [groups, ["wrong"], 0.1]) == ["a"]


@pytest.mark.parametrize(("wanted", "step"), [(0, 10), (10, 10), (14, 10), (20, 20), (99, 30)])
def test_a_step_without_rollouts_shows_the_one_before(in_browser, wanted, step):
    assert (
        in_browser(ROLLOUTS, "(r, wanted) => [10, 20, 30][r.nearestStep([10, 20, 30], wanted)]", wanted)
        == step
    )


def test_a_log_reads_as_a_terminal_would_leave_it(in_browser):
    text = "\x1b[31mred\x1b[0m\r\nload 10%\rload 100%\nlink \x1b]8;;http://x\x07y\x1b]8;;\x07\n"
    assert in_browser(LOG, "(l, text) => l.terminalText(text)", text) == "red\nload 100%\nlink y\n"


@pytest.mark.parametrize(
    ("status", "wish", "moves"),
    [
        ("queued", "", ["pause", "stop"]),
        ("running", "", ["pause", "stop"]),
        ("running", "stop", ["resume"]),
        ("paused", "", ["resume", "stop"]),
        ("stopped", "", ["resume"]),
        ("failed", "", ["retry"]),
        ("finished", "", []),
    ],
)
def test_a_run_offers_the_moves_that_the_server_allows(in_browser, status, wish, moves):
    function = "(r, run) => r.movesOf(run).map(({ move }) => move)"
    assert in_browser("lib/runs/moves.js", function, {"status": status, "wish": wish}) == moves
