"""Pictures of collectives as data and SVG: plain Python above `collectives`, below the notebook."""

from teachdist.pictures.scene import scene

__all__ = ["scene"]
