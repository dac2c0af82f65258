"""Pictures of several ranks, side by side: what differs between them is then seen at a glance."""

import base64

_KINDS = ("image/png", "image/jpeg", "image/svg+xml")


def is_picture(part):
    """Whether a part (see ``outputs.parts``) is a picture."""
    return part[0] == "rich" and any(kind in part[1] for kind in _KINDS)


def side_by_side(columns):
    """One bundle for the pictures of several ranks.

    Args:
        columns: list of (label, list of bundles), one per column.
    """
    heads = "".join(f"<th>{label}</th>" for label, _ in columns)
    rows = range(max(len(bundles) for _, bundles in columns))
    body = "".join(
        "<tr>" + "".join(_cell(bundles, row) for _, bundles in columns) + "</tr>" for row in rows
    )
    plain = "\n".join(
        f"{label} {bundle.get('text/plain', '<picture>')}"
        for label, bundles in columns
        for bundle in bundles
    )
    return {"text/html": f"<table><tr>{heads}</tr>{body}</table>", "text/plain": plain}


def _cell(bundles, row):
    return f"<td>{_image(bundles[row]) if row < len(bundles) else ''}</td>"


def _image(bundle):
    kind = next(kind for kind in _KINDS if kind in bundle)
    data = "".join(bundle[kind])
    if kind == "image/svg+xml":
        data = base64.b64encode(data.encode()).decode()
    return f'<img src="data:{kind};base64,{"".join(data.split())}">'
