"""Key-value stores: how ranks find each other.

Before the first collective, ranks that know nothing of each other must exchange addresses. They
do it through a store that all of them can reach: a dictionary with the one special rule that
``get`` waits until the key is there. Here are torch's four stores in Python, the same in names,
semantics and bytes:

- :class:`HashStore` (hash.py): a dictionary and a lock, for threads. Read this one first.
- :class:`FileStore` (file_store/): records appended to a file.
- :class:`TCPStore` (tcp_store/): a client of a server, which keeps table.py and waits.py.
  What they say to each other is a table in tcp_store/wire.py.
- :class:`PrefixStore` (prefix.py): any of them, with a prefix before each key.

And what torch does not have: :func:`sniff` prints the messages; :func:`generation` keeps launches
on one store apart; :func:`use_for_rendezvous` puts our stores under ``tcp://``, ``file://`` and
``env://``; ``python -m teachdist.stores`` runs the server alone; ``python -m
teachdist.stores.bench`` compares the speed with torch's.

Names are loaded when first asked for: the server needs no torch.
"""

import importlib

from teachdist.environment import switch

_PUBLIC = {
    "FileStore": "file_store.file_store",
    "HashStore": "hash",
    "PrefixStore": "prefix",
    "TCPStore": "tcp_store.tcp_store",
    "Server": "tcp_store.server",
    "generation": "generation",
    "measure": "bench",
    "sniff": "tcp_store.sniff",
    "use_for_rendezvous": "rendezvous",
}

__all__ = list(_PUBLIC)


def __getattr__(name):
    if name in _PUBLIC:
        value = getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})


if switch("TEACHDIST_STORES", False):
    importlib.import_module(f"{__name__}.rendezvous").use_for_rendezvous()
