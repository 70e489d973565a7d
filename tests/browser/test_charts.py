"""From series to a figure: what is drawn is what was recorded."""

import math

import pytest

FIGURE = "charts/figure.js"


def series(**changes):
    return {
        "run": "r",
        "name": "r",
        "metric": "loss/total",
        "x": [1, 2, 4],
        "steps": [1, 2, 4],
        "values": [0.0, 1.0, 2.0],
        "non_finite": [],
        "raw_points": 3,
        **changes,
    }


@pytest.fixture
def figure(in_browser):
    def build(*items, **view):
        lines = [
            {"series": item, "name": item["name"], "look": {"colour": "#112233", "dash": "solid"}}
            for item in items
        ]
        view = {
            "metric": "loss/total",
            "xKind": "step",
            "logX": False,
            "logY": False,
            "zoom": None,
            "theme": {},
            **view,
        }
        return in_browser(FIGURE, "(f, [lines, view]) => f.figureOf(lines, view)", [lines, view])

    return build


def test_a_loss_of_zero_is_drawn(figure):
    [trace] = figure(series())["data"]
    assert (trace["x"], trace["y"]) == ([1, 2, 4], [0, 1, 2])


def test_every_trace_is_svg(figure):
    band = series(group="g", low=[0, 0, 1], high=[1, 2, 3])
    nan = series(non_finite=[{"step": 3, "x": 3, "value": "NaN"}])
    assert {trace["type"] for trace in figure(band, nan)["data"]} == {"scatter"}


def test_a_line_breaks_where_a_value_is_not_finite(figure):
    line, marks = figure(series(non_finite=[{"step": 3, "x": 3, "value": "NaN"}]))["data"]
    assert line["y"] == [0, 1, None, 2]
    assert (marks["x"], marks["text"], marks["yaxis"]) == ([3], ["NaN"], "y2")


@pytest.mark.parametrize(
    ("value", "symbol"), [("NaN", "x-thin"), ("Infinity", "triangle-up"), ("-Infinity", "triangle-down")]
)
def test_each_kind_of_non_finite_has_its_own_mark(figure, value, symbol):
    marks = figure(series(non_finite=[{"step": 3, "x": 3, "value": value}]))["data"][1]
    assert marks["marker"]["symbol"] == [symbol]


def test_events_are_drawn_where_their_steps_lie(figure):
    marks = [{"step": 2, "text": "reference <b>replaced</b>"}, {"step": 3, "text": "continued"}]
    by_step, _ = figure(series(), marks=marks)["data"]
    assert (by_step["x"], by_step["y"]) == ([2, 2, None, 3, 3, None], [0, 1, None] * 2)
    assert by_step["text"][0] == "reference &lt;b&gt;replaced&lt;/b&gt;"
    by_tokens, _ = figure(series(x=[10, 20, 40]), marks=marks, xKind="tokens")["data"]
    assert by_tokens["x"] == [20, 20, None, 20, 20, None]  # step 3 has no point: the last one before it


def test_a_lone_point_between_gaps_is_visible(in_browser):
    assert in_browser(FIGURE, "f => f.isolatedSizes([1, null, 2, null, 3, 4])") == [5, 0, 5, 0, 0, 0]


def test_a_run_of_one_point_is_visible(in_browser):
    assert in_browser(FIGURE, "f => f.isolatedSizes([7])") == [5]


def test_a_log_axis_leaves_out_what_has_no_logarithm(figure):
    [trace] = figure(series(), logY=True)["data"]
    assert trace["y"] == [None, 1, 2]


def test_a_band_stops_where_one_seed_is_left(in_browser):
    band = series(low=[0, 0.5, None], high=[1, 1.5, None])
    assert in_browser(FIGURE, "(f, band) => f.bandOf(band)", band) == {
        "x": [1, 2, 2, 1],
        "y": [1, 1.5, 0.5, 0],
    }


def test_evaluations_are_markers(figure):
    [trace] = figure(series(metric="eval/accuracy"), metric="eval/accuracy")["data"]
    assert trace["mode"] == "lines+markers"
    assert trace["marker"]["symbol"] == "square-open"


def test_a_mean_tells_its_seeds_and_its_band(figure):
    _, mean, _ = figure(series(group="g", n=[3, 3, 1], low=[0, 0.5, None], high=[1, 1.5, None]))["data"]
    assert mean["text"] == ["n 3, 0 to 1", "n 3, 0.500 to 1.500", "n 1"]


def test_a_wide_band_does_not_hide_the_curves(figure):
    two_seeds = series(group="g", low=[-900, 0, 1], high=[900, 2, 3])
    assert figure(two_seeds)["layout"]["yaxis"]["autorangeoptions"] == {"clipmin": -1, "clipmax": 3}


def test_evaluations_at_every_step_are_a_curve(figure):
    steps = list(range(61))
    often = series(metric="eval/accuracy", x=steps, steps=steps, values=steps)
    [trace] = figure(often, metric="eval/accuracy")["data"]
    assert trace["mode"] == "lines"


def test_all_panels_of_a_run_have_one_x_range(figure):
    sparse = series(metric="eval/accuracy", x=[0, 50, 100], steps=[0, 50, 100])
    dense = series(x=[1, 2, 100], steps=[1, 2, 100])
    ranges = [
        figure(sparse, metric="eval/accuracy")["layout"]["xaxis"]["range"],
        figure(dense)["layout"]["xaxis"]["range"],
    ]
    assert ranges == [[-2, 102], [-2, 102]]


def test_a_run_that_has_just_begun_gets_room_for_ten_steps(figure):
    assert figure(series())["layout"]["xaxis"]["range"] == pytest.approx([-0.2, 10.2])


def test_a_name_is_text_and_never_markup(figure):
    name = '<a href="javascript:alert(1)">x</a> & %{y}'
    [trace] = figure(series(name=name))["data"]
    assert "<a" not in trace["name"]
    assert "<a" not in trace["hovertemplate"]
    assert "%{y}<" not in trace["hovertemplate"]


def test_wall_time_reads_in_minutes_once_it_is_long(figure):
    built = figure(series(x=[60, 120, 600]), xKind="wall")
    assert built["unit"] == {"size": 60, "unit": "min"}
    assert built["data"][0]["x"] == [1, 2, 10]


def test_a_zoom_on_a_log_axis_is_given_in_powers_of_ten(figure):
    built = figure(series(), logX=True, zoom=[10, 1000])
    assert built["layout"]["xaxis"]["range"] == [1, 3]


@pytest.mark.parametrize(("zoom", "shown"), [([-1, 100], [1, 100]), ([0, 0.5], [0.05, 0.5])])
def test_a_zoom_on_a_log_axis_begins_at_the_first_point_that_can_be_drawn(figure, zoom, shown):
    later = series(x=[-2, 3, 4])
    built = figure(later, series(x=[0, 1, 50]), logX=True, zoom=zoom)["layout"]["xaxis"]["range"]
    assert built == pytest.approx([math.log10(edge) for edge in shown])


def test_a_zoom_with_nothing_that_a_log_axis_could_show_shows_everything(figure):
    axis = figure(series(x=[-2, 0, 4]), logX=True, zoom=[-2, 0])["layout"]["xaxis"]
    assert (axis.get("range"), axis["autorange"]) == (None, True)


def test_zoom_survives_new_data_and_not_another_axis(figure):
    first, second = figure(series()), figure(series(values=[5, 5, 5]))
    other = figure(series(), logY=True)
    assert first["layout"]["uirevision"] == second["layout"]["uirevision"] != other["layout"]["uirevision"]


def badge(in_browser, items, **view):
    shown = {"smoothing": 0, "logX": False, "logY": False, "grouped": "", "asked": len(items), "most": 200}
    view = shown | view
    notes = in_browser("charts/badge.js", "(b, [items, view]) => b.badge(items, view)", [items, view])
    return [note["text"] for note in notes]


def test_the_badge_says_that_all_points_are_shown_raw(in_browser):
    assert badge(in_browser, [series()]) == ["1 run", "all 3 points", "unsmoothed"]


def test_a_page_without_groups_has_no_means(in_browser):
    view = {"x": "step", "log": [], "smoothing": 0, "zoom": None}
    call = "(s, [items, view]) => s.notesOf(items, [], s.shownOf('loss/total', view), view, 1)"
    notes = in_browser("components/curves/shown.js", call, [[series()], view])
    assert [note["text"] for note in notes] == ["1 run", "all 3 points", "unsmoothed"]


def test_the_badge_counts_what_the_picture_leaves_out(in_browser):
    nan = series(raw_points=9000, non_finite=[{"step": 3, "x": 3, "value": "NaN"}])
    assert badge(in_browser, [nan], smoothing=0.6, logY=True, asked=2) == [
        "1 run",
        "4 of 9\u202f000 points",
        "smoothed 0.6",
        "1 not finite",
        "1 ≤ 0 not drawable",
        "1 run without data",
    ]


def test_the_badge_counts_the_points_that_a_logarithmic_step_axis_leaves_out(in_browser):
    first = series(x=[-1, 0, 2])
    assert badge(in_browser, [first], logX=True) == [
        "1 run",
        "all 3 points",
        "unsmoothed",
        "2 points at x ≤ 0 not drawable",
    ]


def test_the_badge_says_that_more_runs_were_asked_for_than_can_be_drawn(in_browser):
    assert badge(in_browser, [series()] * 200, asked=250)[-1] == "showing 200 of 250 runs"


def test_the_badge_of_means_tells_how_many_seeds(in_browser):
    group = series(n=[3, 3, 2], raw_points=8)
    assert badge(in_browser, [group], grouped="variant") == [
        "1 variant, n 2–3, faint where fewer",
        "means at 3 points from 8 values",
        "unsmoothed",
    ]
    assert badge(in_browser, [group, group], grouped="group")[0].startswith("2 groups, ")


def test_the_badge_of_means_counts_no_values_of_single_runs_as_points(in_browser):
    group = series(n=[2, 1, 2], raw_points=6, non_finite=[{"step": 2, "x": 2, "value": "NaN"}])
    assert badge(in_browser, [group], grouped="variant")[1:] == [
        "means at 3 points from 6 values",
        "unsmoothed",
        "1 not finite",
    ]


@pytest.mark.parametrize(("zoom", "outside"), [([50, 60], True), ([-9, -1], True), ([1.2, 1.8], False)])
def test_a_window_is_empty_where_no_curve_crosses_it(in_browser, zoom, outside):
    curve = {"x": [1, 2], "non_finite": []}
    assert (
        in_browser("charts/figure.js", "(f, [items, z]) => f.isOutside(items, z)", [[curve], zoom]) is outside
    )


def test_a_constant_learning_rate_has_a_scale_on_which_it_can_be_read(figure):
    axis = figure(series(values=[1e-6, 1e-6, 1e-6]))["layout"]["yaxis"]
    assert (axis["range"], axis["autorange"]) == ([0, 2e-6], False)


def test_curves_that_change_find_their_own_scale(figure):
    assert "range" not in figure(series())["layout"]["yaxis"]


def test_a_mean_is_faint_where_fewer_runs_count_and_says_how_many(figure):
    item = series(
        run=None, group="g", runs=["a", "b", "c"], x=[1, 2, 3, 4], steps=[1, 1, 1, 1],
        values=[1, 2, 3, 4], n=[3, 3, 1, 1], gaps=[],
        non_finite=[{"step": 1, "x": 1.5, "value": "NaN"}],
    )  # fmt: skip
    few, whole, marks = figure(item, xKind="wall")["data"]
    assert (whole["y"], whole["meta"]["role"]) == ([1, 2, None, None], "main")
    assert marks["x"] == [1.5]
    assert (few["y"], few["opacity"]) == ([None, 2, 3, 4], 0.5)
    assert few["text"] == ["n 3", "n 3", "n 1 of 3", "n 1 of 3"]
    assert "step" not in few["hovertemplate"]


def test_a_mean_has_a_gap_where_no_run_has_a_value(figure):
    gap = [{"step": 3, "x": 3, "value": "NaN"}]
    line, _ = figure(series(run=None, group="g", n=[1, 1, 1], gaps=gap, non_finite=gap))["data"]
    assert line["y"] == [0, 1, None, 2]


def onset(**changes):
    return {"run": "r", "from": 1, "to": 2, "text": "<b>r</b>, collapsed"} | changes


def onset_traces(figure, *items, **view):
    view = {"theme": {"bad": "rgb(200, 10, 20)"}} | view
    return [trace for trace in figure(*items, **view)["data"] if trace["meta"]["role"] == "onset"]


def test_the_onset_of_a_single_run_is_a_band_with_a_word(figure):
    [band] = onset_traces(figure, series(), onsets=[onset()])
    assert band["x"][:4] == [1, 1, 2, 2]
    assert (band["text"][-1], band["fillcolor"]) == (" onset", "rgba(200,10,20,0.16)")
    assert band["hovertext"] == "&lt;b&gt;r&lt;/b&gt;, collapsed"


def test_the_onset_of_one_of_many_has_the_colour_of_its_line(figure):
    [band] = onset_traces(figure, series(run="other", name="other"), series(), onsets=[onset()])
    assert (band["line"]["color"], band["mode"]) == ("#112233", "lines")


def test_the_onset_of_a_run_lies_where_its_step_was_reached(figure):
    points = series(x=[10.0, 20.0, 40.0])
    [band] = onset_traces(figure, points, onsets=[onset(**{"from": 2, "to": 3})], xKind="tokens")
    assert band["x"][:4] == [20, 20, 20, 20]


def test_a_mean_shows_the_onsets_of_its_runs_along_steps_only(figure):
    mean = series(run=None, group="g", runs=["r", "s"])
    assert len(onset_traces(figure, mean, onsets=[onset(), onset(run="s"), onset(run="gone")])) == 2
    assert onset_traces(figure, mean, onsets=[onset()], xKind="wall") == []
