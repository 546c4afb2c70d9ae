"""Draw and save figures: style, colours, axes, bands. Knows no tables."""

import contextlib
import functools
import io
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from timescales.files import write_atomic
from timescales.nn import registry

COLOURS = {model.name: model.colour for model in registry.BY_NAME.values()}
# By the gate of the gated models, and of the RMC except for its own gate "-".
GATES = {
    "-": COLOURS["lstm"],
    "c": COLOURS["chrono"],
    "ur": COLOURS["ur"],
    "o": "#b7950b",
    "u": "#17a2b8",
    "r": "#e74c3c",
    "om": "#117864",
    "or": "#d35400",
    "um": "#34495e",
}
STYLES = ("-", "--", ":", "-.")  # distinguish lines of one colour
MARKERS = ("", "o", "s", "^", "D", "v", "x")  # distinguish runs of one colour where line styles have another meaning
DPI = 110
LARGEST = 200_000  # bytes of a figure: many figures are committed


Look = dict[str, Any]  # how matplotlib draws a line: {"lw": 1.5, "color": "black"}

# All colours by name: one a model, one a gate.
SHADES = {
    **{f"m-{name}": code for name, code in COLOURS.items()},
    **{f"g-{name}": code for name, code in GATES.items()},
    "other": "#e6007e",  # the user's model; all other colours are duller
}


def shade(settings: Mapping[str, object]) -> str:
    """Return the name in SHADES of a run with these settings ("model", "model.gate"), from its gate or its model."""
    model, gate = str(settings.get("model")), str(settings.get("model.gate"))
    by_gate = model == "gated" or (model == "rmc" and gate != "-")
    names = (f"g-{gate}" if by_gate else "", f"m-{model}")
    return next((name for name in names if name in SHADES), "other")


def colour(settings: Mapping[str, object]) -> str:
    """Return the colour of a run with these settings."""
    return SHADES[shade(settings)]


def shades(n: int) -> list[Any]:
    """Return n colours for an ordered series, dark to light. No model has one of them."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.9 * k / max(1, n - 1)) for k in range(n)]


def format_number(value: float) -> str:
    """Format a number with three digits, or with commas between thousands."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def literal(text: str) -> str:
    """Escape the dollar signs of a user's text, such as a column's name: between two of them it would be a formula."""
    return text.replace("$", r"\$")


def plain_ticks(ax: Any) -> None:
    """Label logarithmic axes with plain numbers. Call it when the limits of the axes are final.

    Powers of ten are labelled. If the range is below 30 or shows fewer than two powers, 2 and 5 times a power are
    labelled, too. If fewer than two labels result, 3 and 7 times a power are labelled as well, or else all ticks.
    """

    def text(value: float, _: Any, digits: str) -> str:
        return f"{value:,.12g}" if f"{value:e}"[0] in digits else ""

    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        if axis.get_scale() == "log":
            ticks = [tick for tick in (*axis.get_majorticklocs(), *axis.get_minorticklocs()) if low <= tick <= high]
            for digits in ("125", "12357", "123456789") if high < 30 * low else ("1", "125"):
                label = functools.partial(text, digits=digits)
                if sum(label(tick, None) != "" for tick in ticks) > 1:
                    break
            axis.set_major_formatter(label)
            axis.set_minor_formatter("" if digits == "1" else label)


@contextlib.contextmanager
def fixed_style() -> Iterator[None]:
    """Draw with matplotlib's defaults, whatever the user's matplotlibrc sets: in a `with` block, or as a decorator.

    A figure must be drawn and saved in one style: some settings take effect at drawing, others at saving.
    """
    import matplotlib.style

    with matplotlib.style.context("default"):
        yield


def empty_figure(width: float = 6.4, height: float = 4.8) -> Any:
    """Make a figure without axes, its size in inches. Call it, draw and save under `fixed_style`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def panels(
    figure: Any, columns: int = 1, rows: int = 1, width: float = 7.0, height: float = 4.2, **options: Any
) -> list[Any]:
    """Set the size of an empty figure in inches and add axes, row by row.

    options: arguments of `Figure.subplots`.
    """
    figure.set_size_inches(width, height)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return list(axes.flat)


def band(ax: Any, x: Sequence[float], y: Sequence[float], error: Sequence[float], colour: str, **line: Any) -> None:
    """Draw a line with a dot at every point, and its error as a band. line: options of the line."""
    ax.plot(x, y, color=colour, marker="o", **line)
    low, high = ([a + sign * b for a, b in zip(y, error, strict=True)] for sign in (-1, 1))
    ax.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)


def by_rank(ax: Any, times: Sequence[float], **look: Any) -> None:
    """Draw the times of units, (units,), over the share of units with a longer one.

    Only finite times above 0 are drawn. look: how the line is drawn.
    """
    ordered = sorted((math.inf if math.isnan(time) else time for time in times), reverse=True)
    share = [(k + 0.5) / len(ordered) for k in range(len(ordered))]
    ax.plot(share, [time if 0.0 < time < math.inf else math.nan for time in ordered], **look)


def draw_baselines(ax: Any, baselines: Mapping[str, float]) -> None:
    """Draw a horizontal line for each trivial baseline, by its words (`Task.trivial_baselines`)."""
    for rule, value in baselines.items():
        ax.axhline(value, color="#888888", ls=(0, (1, 3)), lw=1, label=f"{rule}: {value:.3g}")


def small_legend(ax: Any, **options: Any) -> None:
    """Draw a legend in small letters without a frame."""
    ax.legend(frameon=False, fontsize=8, **options)


def legend_at_right(ax: Any, **options: Any) -> None:
    """Draw a small legend to the right of the axes."""
    small_legend(ax, loc="center left", bbox_to_anchor=(1.0, 0.5), **options)


@fixed_style()
def write(draw: Callable[[Any], None], path: Path, title: str, svg: bool = False) -> list[Path]:
    """Draw a figure and write PATH.png, at most 200 KB, and on request PATH.svg. Return their paths.

    draw: called with an empty matplotlib figure.
    """
    figure = empty_figure()
    draw(figure)
    letters = int(13 * figure.get_figwidth())  # the letters that fit into a line of the title
    lines = [textwrap.fill(line, letters) for line in title.split("\n")]
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10)
    png = path.with_suffix(".png")
    write_atomic(png, small_png(figure))
    if not svg:
        return [png]
    content = io.BytesIO()
    figure.savefig(content, format="svg")
    write_atomic(path.with_suffix(".svg"), content.getvalue())
    return [png, path.with_suffix(".svg")]


def small_png(figure: Any) -> bytes:
    """Return the figure as PNG, with fewer colours or pixels if it is larger than LARGEST."""

    def drawn(dpi: int) -> bytes:
        content = io.BytesIO()
        figure.savefig(content, dpi=dpi)
        return content.getvalue()

    from PIL import Image

    png = whole = drawn(DPI)
    for dpi in (DPI, 80, 60, 45):
        if len(png) <= LARGEST:
            break
        image = Image.open(io.BytesIO(whole if dpi == DPI else drawn(dpi)))
        reduced = io.BytesIO()  # with 256 colours hundreds of thin lines take half the bytes, and look the same
        image.convert("RGB").quantize(256).save(reduced, "png", optimize=True)
        png = reduced.getvalue()
    return png
