"""The few pieces of SVG that the pictures are made of: text, lines, boxes, and one style for all.

The idea: a picture must be readable on a light page, on a dark one, in a saved notebook and on
GitHub, and by people who don't tell all colours apart. So it brings its own background, which
follows the reader's preference for light or dark, and whatever a colour says is said by a position
or a number as well. The eight colours are those of Okabe and Ito, "Color universal design" (2008).
"""

from __future__ import annotations

import hashlib
from html import escape

PALETTE = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#999999",
)

_STYLE = """
.td-back{fill:#ffffff}.td-ink{fill:#1f2328}.td-soft{fill:#59636e}.td-line{stroke:#59636e;fill:none}
.td-rim{stroke:#59636e;stroke-width:.6}
.td-faint{stroke:#d1d9e0;fill:none}.td-box{stroke:#59636e;fill:#f3f5f7}.td-bad{fill:#b3261e}
.td-text{font:12px system-ui,sans-serif}.td-small{font:10px system-ui,sans-serif}
@media (prefers-color-scheme:dark){.td-back{fill:#15191f}.td-ink{fill:#e6edf3}
.td-soft{fill:#a7b0ba}.td-line,.td-rim{stroke:#a7b0ba}.td-faint{stroke:#39424d}
.td-box{stroke:#a7b0ba;fill:#232a33}.td-bad{fill:#ff8a80}}
"""


def color(rank: int) -> str:
    """The colour of a rank; from the ninth on they repeat, so never rely on colour alone."""
    return PALETTE[rank % len(PALETTE)]


def document(width: float, height: float, title: str, description: str, parts: list[str]) -> str:
    """A whole SVG with a title and a description for those who don't see it."""
    key = hashlib.sha256("".join([title, *parts]).encode()).hexdigest()[:8]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" style="max-width:100%;height:auto" role="img" '
        f'aria-labelledby="td-t-{key} td-d-{key}">'
        f'<title id="td-t-{key}">{escape(title)}</title>'
        f'<desc id="td-d-{key}">{escape(description)}</desc>'
        f"<style>{_STYLE.strip()}</style>"
        f'<rect class="td-back" width="{width:g}" height="{height:g}" rx="8"/>'
        + "".join(parts)
        + "</svg>"
    )


def text(x, y, content, anchor="start", style="td-text td-ink") -> str:
    """A line of text."""
    where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text class="{style}" {where}>{escape(str(content))}</text>'


def boxes(places, style="td-box", fill=None) -> str:
    """Boxes at (x, y, width, height), all in one path; `fill` overrides the style's."""
    paint = f'fill="{fill}"' if fill else f'class="{style}"'
    path = "".join(f"M{x:g} {y:g}h{w:g}v{h:g}h{-w:g}z" for x, y, w, h in places)
    return f'<path {paint} d="{path}"/>' if path else ""


def line(x1, y1, x2, y2, style="td-line", dashed=False) -> str:
    """A straight line."""
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path class="{style}"{dash} d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>'


def arrow(x1, y1, x2, y2, stroke, dashed=False) -> str:
    """An arrow with its head at (x2, y2), with a rim that sets off pale colours."""
    length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1e-9)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    bx, by = x2 - 8 * ux, y2 - 8 * uy
    dash = ' stroke-dasharray="5 3"' if dashed else ""
    shaft = f'd="M{x1:.1f} {y1:.1f}L{bx:.1f} {by:.1f}"'
    return (
        f'<path class="td-line" {shaft} stroke-width="3"{dash}/>'
        f'<path {shaft} stroke="{stroke}" stroke-width="1.8" fill="none"{dash}/>'
        f'<path class="td-rim" d="M{x2:.1f} {y2:.1f}L{bx - 4 * uy:.1f} {by + 4 * ux:.1f}'
        f'L{bx + 4 * uy:.1f} {by - 4 * ux:.1f}Z" fill="{stroke}"/>'
    )


def polyline(points, stroke, dashed=False) -> str:
    """A line through many points."""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="M{path}" stroke="{stroke}" stroke-width="2" fill="none"{dash}/>'
