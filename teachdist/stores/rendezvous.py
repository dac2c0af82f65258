"""``tcp://``, ``file://`` and ``env://`` on the stores of this package.

``init_process_group`` finds its store by the scheme of ``init_method``: torch keeps a handler per
scheme, which makes a store and says which rank we are. The handlers stay torch's; they are given
our classes in place of torch's, and each launch gets its own generation of keys.

Two ways to ask for it: ``TEACHDIST_STORES=1`` in the environment, which holds for what a launcher
starts, or a call of :func:`use_for_rendezvous`. Ranks with ours and ranks with torch's can meet.
The variable is read when this package or ``teachdist.backend`` is imported, and torch imports a
backend by its name only after the ranks have met: so a script says ``import teachdist.backend``.

The server listens on the address that ``init_method`` or ``MASTER_ADDR`` names. Where that name
means the loopback on rank 0's own machine (many systems map their host name so), set
``TEACHDIST_STORE_BIND`` to the address to listen on, or to nothing for all, and perhaps
``TEACHDIST_STORE_ALLOW`` to the networks that may connect ("10.0.0.0/8 192.168.1.0/24").
"""

import importlib
import os
from functools import wraps
from ipaddress import ip_network

from teachdist.stores.file_store.file_store import FileStore
from teachdist.stores.generation import generation
from teachdist.stores.tcp_store.tcp_store import TCPStore

SCHEMES = ("tcp", "file", "env")
_torchs = {}


def use_for_rendezvous(on=True):
    """From now on make the stores of ``init_process_group`` with our classes, or torch's again."""
    # torch.distributed.register_rendezvous_handler refuses a scheme that has a handler, so the
    # handlers are exchanged where torch keeps them.
    torchs = importlib.import_module("torch.distributed.rendezvous")
    handlers = torchs._rendezvous_handlers
    if on and not _torchs:
        _torchs.update(TCPStore=torchs.TCPStore, FileStore=torchs.FileStore)
        torchs.TCPStore, torchs.FileStore = _tcp_store, FileStore
        for scheme in SCHEMES:
            _torchs[scheme] = handlers[scheme]
            handlers[scheme] = _by_generations(handlers[scheme])
    elif not on and _torchs:
        handlers.update({scheme: _torchs.pop(scheme) for scheme in SCHEMES})
        torchs.TCPStore, torchs.FileStore = _torchs.pop("TCPStore"), _torchs.pop("FileStore")


def _tcp_store(*arguments, **options):
    bind, allow = (
        os.environ.get("TEACHDIST_STORE_BIND"),
        os.environ.get("TEACHDIST_STORE_ALLOW", ""),
    )
    try:
        networks = [str(ip_network(one)) for one in allow.split()]
    except ValueError as error:
        raise ValueError(f"TEACHDIST_STORE_ALLOW={allow}: {error}") from error
    return TCPStore(*arguments, **options, bind=bind, allow=networks)


def _by_generations(handler):
    @wraps(handler)
    def handle(url, **options):
        for store, rank, world_size in handler(url, **options):
            yield generation(store, rank), rank, world_size

    return handle
