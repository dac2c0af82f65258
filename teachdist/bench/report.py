"""The rows of a run as a table, as JSON and as a plot."""

import json
import os
import platform

import torch

from teachdist.bench.targets import target


def header(kinds):
    """The table's first line."""
    shown = "  ".join(f"{kind + ' us':>10} {'ratio':>6}" for kind in kinds)
    left = f"{'op':<15} {'bytes':>6} {'p':>2} {'thr':>3} {'gloo us':>10}"
    return f"{left}  {shown}  {'target':>6} {'GB/s':>6} {'of copy':>7}"


def line(row, kinds):
    """One row of the table."""
    seconds = row["seconds"]
    shown = "  ".join(
        f"{seconds[kind] * 1e6:>10.1f} {seconds['gloo'] / seconds[kind]:>6.2f}" for kind in kinds
    )
    wanted = target(row["op"], row["nbytes"], kinds[0]) or ""
    speed = row["moved"] / seconds[kinds[0]]
    limit = f"{speed / 1e9:>6.2f} {speed / row['copy']:>7.0%}" if row["moved"] else ""
    if row.get("alone"):
        limit += f"  computing alone: {seconds['gloo'] / row['alone']:.2f}"
    return (
        f"{row['op']:<15} {size(row['nbytes']):>6} {row['ranks']:>2} {row['threads']:>3} "
        f"{seconds['gloo'] * 1e6:>10.1f}  {shown}  {wanted:>6} {limit}"
    )


def size(nbytes):
    """64K for 65536."""
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if nbytes >= factor and nbytes % factor == 0:
            return f"{nbytes // factor}{unit}"
    return str(nbytes)


def write_json(path, rows, arguments, command):
    """Everything that was measured, the command, and the machine it was measured on."""
    machine = {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": os.getloadavg()[0],
    }
    with open(path, "w") as file:
        found = {"command": command, "machine": machine, "arguments": arguments, "rows": rows}
        json.dump(found, file, indent=1)


def plot(path, rows, kind):
    """The ratio over the size, a line per operation and number of ranks."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    lines = {}
    for row in rows:
        ratio = row["seconds"]["gloo"] / row["seconds"][kind]
        key = f"{row['op']}, {row['ranks']} ranks, {row['threads']} thr."
        lines.setdefault(key, []).append((max(1, row["nbytes"]), ratio))
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.axhline(1, color="grey", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="times as fast as gloo")
    axes.legend(fontsize="x-small", ncols=2)
    figure.savefig(path, bbox_inches="tight", dpi=120)
    pyplot.close(figure)
