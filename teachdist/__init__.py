"""See, learn and debug torch.distributed.

Public names are loaded when first asked for, so that ``import teachdist.collectives`` needs
nothing but Python itself: the algorithms run wherever Python runs, a browser included.
"""

import importlib

__version__ = "0.1.0"

# name -> module that defines it
_PUBLIC = {
    "Algorithm": "teachdist.collectives",
    "algorithm": "teachdist.collectives",
    "catalog": "teachdist.collectives",
    "cost": "teachdist.collectives",
    "prove": "teachdist.collectives",
    "Topology": "teachdist.collectives",
    "Options": "teachdist.backend",
    "use": "teachdist.backend",
    "Cluster": "teachdist.notebook",
    "load_ipython_extension": "teachdist.notebook",
    "DeviceMesh": "teachdist.mesh",
    "init_device_mesh": "teachdist.mesh",
    "Join": "teachdist.join",
    "Joinable": "teachdist.join",
    "JoinHook": "teachdist.join",
    "show": "teachdist.notebook",
    "trace": "teachdist.tracing",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name):
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'teachdist' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
