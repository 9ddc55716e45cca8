"""Charts: the drawing, the table behind it, and texts that stay texts."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

import pytest

from flowfabric.dashboard.charts import (
    Chart,
    Series,
    StripMark,
    StripRow,
    StripSpan,
    bars,
    lines,
    round_top,
    sparkline,
    strip,
)
from flowfabric.dashboard.charts.chart import round_time, short
from tests.all_cases import all_cases
from tests.dashboard.graph.graphs import HOSTILE


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 our own


def series(name: str, *values: float | None) -> Series:
    return Series(name=name, look="completed", values=values)


def shape(svg: str) -> Counter[tuple[str, tuple[str, ...]]]:
    return Counter((each.tag, tuple(sorted(each.attrib))) for each in parsed(svg).iter())


def test_bars_stand_on_one_another_and_the_table_has_every_figure() -> None:
    chart = bars("Ends", ["12:00", "12:01"], [series("done", 30, 0), series("failed", 10, 20)])

    [first, second] = parsed(chart.svg).findall("g")
    heights = [float(each.attrib["height"]) for each in first.findall("rect")]
    assert heights == pytest.approx([86.4, 28.8])  # of 144, the scale ends at 50
    assert first.findtext("title") == "12:00: 30 done, 10 failed"
    assert second.findtext("title") == "12:01: 20 failed"
    assert chart.table.rows == [["12:00", "30", "10"], ["12:01", "0", "20"]]
    assert chart.table.head == ["", "done", "failed"]
    assert not chart.is_empty


def test_a_line_has_a_gap_where_there_is_no_figure() -> None:
    chart = lines("Wait", list("abcd"), [series("p50", 1, 2, None, 4)])

    [line] = [path for path in parsed(chart.svg).findall("path") if "line" in path.attrib["class"]]
    assert line.attrib["d"].count("M") == 2
    assert chart.table.rows[2] == ["c", ""]


def test_a_strip_keeps_spans_inside_and_shows_the_shortest() -> None:
    rows = [
        StripRow(
            name="attempt 1",
            spans=[
                StripSpan(start=-5, end=2, look="waiting", title="waited"),
                StripSpan(start=2, end=2, look="active", title="ran", href="/x"),
            ],
            marks=[StripMark(at=99, look="operator", title="cancelled by ann")],
        )
    ]

    chart = strip("Time", rows, seconds=10, ticks=["0 s", "5 s", "10 s"])

    [waited, ran] = parsed(chart.svg).iter("rect")
    assert (waited.attrib["x"], waited.attrib["width"]) == ("168.0", "156.8")
    assert float(ran.attrib["width"]) == 1.5
    [mark] = [path for path in parsed(chart.svg).findall("path") if "mark" in path.attrib["class"]]
    assert mark.attrib["d"].startswith("M952.0")
    assert [row[1] for row in chart.table.rows] == ["waited", "ran", "cancelled by ann"]


def test_empty_charts_are_drawn_and_say_so() -> None:
    nothing: list[Chart] = [
        bars("x", [], []),
        bars("x", ["a"], [series("s", 0)]),
        lines("x", ["a"], [series("s", None)]),
        strip("x", [], seconds=0),
    ]
    for chart in nothing:
        parsed(chart.svg)
        assert chart.is_empty


def test_hostile_texts_add_no_element_and_no_attribute() -> None:
    def all_of(word: str) -> list[str]:
        span = StripSpan(start=0, end=1, look="active", title=word, href="/x")
        return [
            bars(word, [word] * 3, [series(word, 1, 2, 3)]).svg,
            lines(word, [word] * 3, [series(word, 1, 2, 3)]).svg,
            strip(word, [StripRow(name=word, spans=[span])], seconds=1, ticks=[word]).svg,
            sparkline(word, "active", [1, 2]),
        ]

    plain = [shape(svg) for svg in all_of("plain")]
    for hostile in HOSTILE:
        assert [shape(svg) for svg in all_of(hostile)] == plain


def test_a_class_is_a_plain_word_and_series_have_a_figure_for_every_label() -> None:
    for wrong in ('a" onload="x', "", "A b", "ä"):
        with pytest.raises(ValueError, match="is not a class"):
            Series(name="x", look=wrong, values=[])
        with pytest.raises(ValueError, match="is not a class"):
            sparkline("x", wrong, [])
    with pytest.raises(ValueError, match="zip"):
        bars("x", ["a", "b"], [series("s", 1)])


def test_a_scale_ends_at_a_round_figure() -> None:
    given = [0, 0.3, 1, 1.1, 7, 50, 51, 999, 1000]
    assert [round_top(each) for each in given] == pytest.approx(
        [1, 0.5, 1, 2, 10, 50, 100, 1000, 1000]
    )


@all_cases(
    ("value", "said"),
    [(0, "0"), (0.25, "0.25"), (5_000, "5,000"), (20_000, "20k"), (1_500_000, "1.5M"), (2e9, "2G")],
)
def test_large_figures_of_the_scale_have_room_beside_the_chart(value: float, said: str) -> None:
    assert short(value) == said
    top = lines("use", ["a"], [Series(name="used", look="f-blue", values=[value])]).svg
    assert all(len(tick) <= 6 for tick in re.findall(r'class="tick"[^>]*>([^<]*)<', top))


@all_cases(("highest", "top"), [(0.03, 0.05), (7, 10), (61, 120), (1000, 1200), (100_000, 172_800)])
def test_a_scale_of_durations_ends_at_one_that_reads_well(highest: float, top: float) -> None:
    assert round_time(highest) == top
