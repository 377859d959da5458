"""Bar charts as SVG, without a library.

A chart brings its own background and follows the reader's colour scheme, because a page that shows it as an
image cannot pass its colours on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

import attrs

WIDTH, LEFT, PLOT, RIGHT = 760, 290, 350, 745
TOP, ROW, THICK, GAP, FOOT = 46, 24, 14, 12, 44
#: More would not fit, in any usual font.
MOST_LETTERS = 34

_LIGHT = {"back": "#ffffff", "edge": "#d0d7de", "text": "#1f2328", "quiet": "#57606a"}
_LIGHT |= {"ours": "#3f7fb5", "peer": "#a8b1ba", "mark": "#b3400a"}
_DARK = {"back": "#161b22", "edge": "#3d444d", "text": "#e6edf3", "quiet": "#9aa4af"}
_DARK |= {"ours": "#4a8fc9", "peer": "#6b747e", "mark": "#f0883e"}


@attrs.frozen
class Bar:
    """One bar.

    Attributes:
        label: what it is, left of the bar.
        value: its length, in units that all bars of a chart share.
        low, high: the range of the runs.
        text: the value as it is printed.
        mark: what is asked.
        is_ours: whether it is a figure of this library.
    """

    label: str
    value: float
    low: float
    high: float
    text: str
    mark: float | None = None
    is_ours: bool = True


@attrs.frozen
class Group:
    """Bars below a title, which may be empty."""

    title: str
    bars: tuple[Bar, ...]

    def height(self) -> int:
        return len(self.bars) * ROW + (ROW if self.title else 0) + GAP


def chart(title: str, unit: str, groups: Iterable[Group], line: tuple[float, str] | None = None) -> str:
    """Return a chart.

    Args:
        title: of the chart.
        unit: what the numbers on the right are.
        groups: the bars from the top down.
        line: a value that all bars are compared with, and what it is.
    """
    groups = [group for group in groups if group.bars]
    bars = [bar for group in groups for bar in group.bars]
    most = max([bar.high for bar in bars] + [bar.mark or 0 for bar in bars] + [line[0] if line else 0])
    top = TOP + (ROW if line else 0)
    height = top + sum(group.height() for group in groups) + FOOT
    parts = [*_head(title, height), _text(RIGHT, 26, unit, "end", "quiet")]
    if line:
        x = _x(line[0], most)
        parts.append(f'<path class="line" d="M{x:.1f} {top - 8}V{height - FOOT - GAP / 2:.1f}"/>')
        parts.append(_text(x, top - 12, line[1], "middle", "quiet"))
    y = top
    for group in groups:
        parts += _group(group, y, most)
        y += group.height()
    parts += _legend(height - 18, any(bar.mark is not None for bar in bars))
    return "\n".join([*parts, "</svg>", ""])


def _head(title: str, height: int) -> Iterator[str]:
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield f"<title>{escape(title)}</title>"
    yield f"<style>{_style(_LIGHT)}@media (prefers-color-scheme: dark){{{_style(_DARK)}}}</style>"
    yield f'<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>'
    yield _text(16, 26, title, "start", "title")


def _style(colours: dict[str, str]) -> str:
    return (
        f"text{{font:13px sans-serif;fill:{colours['text']}}}.title{{font-weight:bold;font-size:14px}}"
        f".quiet{{fill:{colours['quiet']};font-size:12px}}.group{{font-weight:bold}}"
        f".back{{fill:{colours['back']};stroke:{colours['edge']}}}.line{{stroke:{colours['quiet']}}}"
        f".ours{{fill:{colours['ours']}}}.peer{{fill:{colours['peer']}}}"
        f".range{{stroke:{colours['text']};stroke-width:1.5}}"
        f".mark{{stroke:{colours['mark']};stroke-width:2.5}}"
    )


def _group(group: Group, y: int, most: float) -> Iterator[str]:
    if group.title:
        yield _text(16, y + 16, group.title, "start", "group")
        y += ROW
    for number, bar in enumerate(group.bars):
        yield from _bar(bar, y + number * ROW, most)


def _bar(bar: Bar, y: int, most: float) -> Iterator[str]:
    top, middle = y + (ROW - THICK) // 2, y + ROW // 2
    kind, length = ("ours" if bar.is_ours else "peer"), _x(bar.value, most) - LEFT
    yield _text(LEFT - 10, middle + 4, bar.label, "end")
    yield f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{max(length, 1):.1f}" height="{THICK}" rx="2"/>'
    if bar.high > bar.low:
        yield f'<path class="range" d="M{_x(bar.low, most):.1f} {middle}H{_x(bar.high, most):.1f}"/>'
    if bar.mark is not None:
        yield f'<path class="mark" d="M{_x(bar.mark, most):.1f} {top - 3}v{THICK + 6}"/>'
    yield _text(RIGHT, middle + 4, bar.text, "end")


def _legend(y: int, has_marks: bool) -> Iterator[str]:
    yield f'<path class="range" d="M16 {y - 4}h22"/>'
    yield _text(44, y, "range of the runs", "start", "quiet")
    if has_marks:
        yield f'<path class="mark" d="M170 {y - 12}v{THICK}"/>'
        yield _text(178, y, "what is asked", "start", "quiet")


def _x(value: float, most: float) -> float:
    return LEFT + PLOT * max(value, 0) / most if most > 0 else LEFT


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{name}>{escape(text)}</text>'
