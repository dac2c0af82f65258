"""See, learn and debug torch.distributed.

Public names are loaded when first asked for, so that ``import teachdist.collectives`` needs
nothing but Python itself: the algorithms run wherever Python runs, a browser included.
"""

import importlib

__version__ = "0.1.0"

# name -> module that defines it
_PUBLIC = {
    name: module
    for module, names in {
        "teachdist.collectives": (
            "Algorithm algorithm catalog choose cost exercise exercises "
            "get lower_bound prove Recv Reduce Refused report Send Topology"
        ),
        "teachdist.backend": "guard Options use",
        "teachdist.pictures": "plot_cost",
        "teachdist.notebook": "Cluster load_ipython_extension show",
        "teachdist.mesh": "DeviceMesh init_device_mesh",
        "teachdist.join": "Join Joinable JoinHook",
        "teachdist.tracing": "trace",
        "teachdist.rehearse": "rehearse",
        "teachdist.rehearse.explore": "explore",
    }.items()
    for name in names.split()
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name):
    if name in _PUBLIC:
        module = importlib.import_module(_PUBLIC[name])
        value = module if module.__name__ == f"teachdist.{name}" else getattr(module, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'teachdist' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
