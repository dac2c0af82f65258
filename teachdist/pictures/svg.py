"""What all pictures share: colours, text, and how an SVG becomes a part of a page.

The pictures stand on their own ground (a white card), because an image in a notebook can't know
whether the page around it is light or dark. Contributions are told by place, number and colour;
`player.js` has the same colours.
"""

from __future__ import annotations

import base64
import json
from html import escape

COLOURS = (  # of Okabe and Ito, "Color universal design" (2008): told apart by most eyes
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#999999",
)
ON_COLOUR = ("#000", "#000", "#000", "#000", "#fff", "#000", "#000", "#000")
INK, SOFT, LINE, CARD, BAD = "#1b1f24", "#57606a", "#d0d7de", "#f6f8fa", "#b3261e"
FONT = "system-ui, sans-serif"


def document(width, height, body, title, data=None) -> str:
    """A whole SVG of `width` by `height` units with a title for screen readers.

    `data` (JSON) goes along as metadata: whoever has the picture has what it was drawn from.
    """
    extra = f"<metadata>{escape(json.dumps(data))}</metadata>" if data is not None else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" font-family="{FONT}" font-size="13" '
        f'fill="{INK}"><title>{escape(title)}</title>{extra}'
        f'<rect width="{width:g}" height="{height:g}" rx="6" fill="#fff" stroke="{LINE}"/>'
        f"{body}</svg>"
    )


def text(x, y, words, *, size=13, anchor="start", fill=INK, bold=False) -> str:
    """One line of text with its baseline at y."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.4g}" y="{y:.4g}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{fill}"{weight}>{escape(str(words))}</text>'
    )


def rect(x, y, width, height, fill, *, stroke="none", rx=0, extra="") -> str:
    """A rectangle."""
    return (
        f'<rect x="{x:.5g}" y="{y:.5g}" width="{max(width, 0):.5g}" height="{height:.5g}" '
        f'rx="{rx}" fill="{fill}" stroke="{stroke}" {extra}/>'
    )


def line(x1, y1, x2, y2, *, stroke=SOFT, width=1, extra="") -> str:
    """A straight line."""
    return (
        f'<line x1="{x1:.5g}" y1="{y1:.5g}" x2="{x2:.5g}" y2="{y2:.5g}" stroke="{stroke}" '
        f'stroke-width="{width}" {extra}/>'
    )


def polyline(points, stroke, *, dashed=False) -> str:
    """A line through points (x, y)."""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="M{path}" stroke="{stroke}" stroke-width="2" fill="none"{dash}/>'


def colour(rank) -> str:
    """The colour of a rank."""
    return COLOURS[rank % len(COLOURS)]


def image(svg: str, words: str) -> str:
    """The picture as HTML that survives JupyterLab's sanitiser, GitHub and every exporter."""
    coded = base64.b64encode(svg.encode()).decode()
    return (
        f'<img class="teachdist" alt="{escape(words)}" style="max-width:100%" '
        f'src="data:image/svg+xml;base64,{coded}">'
    )
