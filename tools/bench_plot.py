"""Latency distributions as an SVG drawing, without any library."""

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 760
HEIGHT: Final = 420
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 30, 60
NINES: Final = 4.0
"""The horizontal axis ends at 99.99 %."""

STEPS: Final = 160
COLOURS: Final = ("#1f6f8b", "#c8553d", "#5a8f29", "#7b4ea3", "#b8860b")
_MARKS: Final = ((0.0, "0"), (1.0, "90"), (2.0, "99"), (3.0, "99.9"), (4.0, "99.99"))


def latency_plot(latencies: Mapping[str, Sequence[float]]) -> str:
    """A drawing of sorted latencies (microseconds) by percentile, one line for each workload.

    Both axes are logarithmic: to the right by the number of nines, upwards by time.
    """
    drawn = {name: values for name, values in latencies.items() if values}
    lowest = min((values[0] for values in drawn.values()), default=1.0)
    highest = max((values[-1] for values in drawn.values()), default=10.0)
    low = math.floor(math.log10(max(lowest, 1.0)))
    high = max(low + 1, math.ceil(math.log10(max(highest, 1.0))))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
        f' viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for power in range(low, high + 1):
        y = _y(10.0**power, low, high)
        parts.append(_line(LEFT, y, WIDTH - RIGHT, y, "#dddddd"))
        parts.append(_text(LEFT - 8, y + 4, _time(10.0**power), "end"))
    for nines, label in _MARKS:
        x = _x(nines)
        parts.append(_line(x, TOP, x, HEIGHT - BOTTOM, "#dddddd"))
        parts.append(_text(x, HEIGHT - BOTTOM + 18, label, "middle"))
    parts.append(_text(WIDTH / 2, HEIGHT - 14, "per cent of requests answered within", "middle"))
    for number, (name, values) in enumerate(drawn.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{_x(nines):.1f},{_y(_at(values, nines), low, high):.1f}"
            for nines in (NINES * step / STEPS for step in range(STEPS + 1))
            if len(values) >= 10**nines
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(_text(LEFT + 14, TOP + 18 + 16 * number, name, "start", colour))
    parts.append("</svg>\n")
    return "\n".join(parts)


def _at(values: Sequence[float], nines: float) -> float:
    share = 1.0 - 10.0**-nines
    return values[min(len(values) - 1, int(share * len(values)))]


def _x(nines: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * nines / NINES


def _y(value_us: float, low: int, high: int) -> float:
    share = (math.log10(max(value_us, 1.0)) - low) / (high - low)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(0.0, min(1.0, share))


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333333") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">'
        f"{escape(text)}</text>"
    )


def _time(value_us: float) -> str:
    if value_us >= 1e6:
        return f"{value_us / 1e6:g} s"
    return f"{value_us / 1e3:g} ms" if value_us >= 1e3 else f"{value_us:g} us"
