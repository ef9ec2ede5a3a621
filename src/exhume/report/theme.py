"""The style of figures: one drawing with colour tokens, rendered for light and for dark mode."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SIZE = (4.4, 3.05)
"""Inches: 422 pixels wide, so that the text is still readable at a width of 330 pixels."""
INK, MUTED, GRID = "#1b2431", "#5b6674", "#e4e8ee"
REACHED, BLIND, BOUND = "#b3331d", "#77828f", "#1c5fa6"
ATTACKS = (REACHED, "#7b4a9e", "#1f7a6b", "#9a6700", "#a83279", "#4a6b1f")
"""Colours of a setting's attacks, the strongest first; beyond six they repeat."""
_DARK = {
    INK: "#e7ebf1",
    MUTED: "#a6b0bd",
    GRID: "#2c343f",
    REACHED: "#f2836b",
    BLIND: "#94a0ae",
    BOUND: "#78b3f2",
    "#7b4a9e": "#c6a0e6",
    "#1f7a6b": "#63c9b6",
    "#9a6700": "#e0b050",
    "#a83279": "#ee8cc2",
    "#4a6b1f": "#a9cf78",
}
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "exhume",
    "svg.fonttype": "none",
    "path.snap": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.8,
}


@dataclass(frozen=True)
class Drawing:
    """A figure as two data URIs, with its alternative text."""

    light: str
    dark: str
    alt: str
    caption: str
    width: int
    height: int


def draw(
    paint: Callable[[Any], None], *, alt: str, caption: str, size: tuple[float, float] = SIZE
) -> Drawing:
    """Draw on fresh axes with ``paint``; the same numbers give the same bytes."""

    def on_axes(figure: Any) -> None:
        axes = figure.add_subplot(facecolor="none")
        figure.subplots_adjust(left=0.165, right=0.96, bottom=0.15, top=0.97)
        paint(axes)

    drawn = svg(on_axes, size=size)
    width, height = (round(96 * inches) for inches in size)
    return Drawing(_uri(drawn), _uri(_darkened(drawn)), alt, caption, width, height)


def svg(
    paint: Callable[[Any], None], *, size: tuple[float, float], background: str = "none"
) -> str:
    """Return what ``paint`` draws on an empty figure, in the report's style."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own matplotlibrc says
        mpl.rcParams.update(_SETTINGS)
        canvas = FigureCanvasSVG(Figure(figsize=size, facecolor=background))
        paint(canvas.figure)
        buffer = io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas.print_figure(buffer, format="svg", metadata=nothing, facecolor=background)
    return _lean(buffer.getvalue().decode())


def paint_roc(
    axes: Any, curves: Sequence[tuple[str, str, Sequence[float], Sequence[float]]]
) -> None:
    """Draw ROC curves and the diagonal of chance: label, colour, false and true positive rates."""
    axes.plot((0, 1), (0, 1), color=MUTED, linewidth=0.9, linestyle=":", label="chance")
    for label, colour, false, true in curves:
        axes.step([0.0, *false], [0.0, *true], where="post", color=colour, label=label)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    for axis in (axes.set_xticks, axes.set_yticks):
        axis(ticks, [f"{tick:.0%}".replace("%", " %") for tick in ticks])
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.02, 1.03))
    axes.set(xlabel="inventions judged real", ylabel="real ones judged real")


def drawn_name(name: str) -> str:
    r"""Return a name that fits a figure: one line, not too long, no leading underscore.

    >>> drawn_name("_a\nb"), len(drawn_name("x" * 80))
    ('ab', 24)
    """
    # A leading underscore would keep it out of the legend.
    name = "".join(c for c in name if c.isprintable()).lstrip("_") or "?"
    return name if len(name) <= 24 else f"{name[:23]}…"


def power(value: float, _: int = 0) -> str:
    """Write a power of ten as plain text, without typesetting that fits only one font.

    >>> power(1e-13), power(1.0), power(10.0), power(0.01)
    ('10⁻¹³', '1', '10', '0.01')
    """
    if 0.009 < value < 101:
        return f"{value:g}"
    exponent = f"{value:.0e}".partition("e")[2]
    return "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _lean(svg: str) -> str:
    """Remove the prologue, and name the page's fonts instead of the measured one."""
    svg = svg[svg.index("<svg") :].replace("'DejaVu Sans', sans-serif", _FONT)
    return re.sub(r"\s*\n\s*", "\n", svg)


def _darkened(svg: str) -> str:
    pattern = re.compile("|".join(_DARK))
    return pattern.sub(lambda found: _DARK[found.group()], svg)


def _uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
