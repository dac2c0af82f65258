"""Pictures of collectives as data and SVG: plain Python above `collectives`, below the notebook."""

from teachdist.pictures.plot import curves, plot_cost
from teachdist.pictures.scene import scene

__all__ = ["curves", "plot_cost", "scene"]
