"""How fast a store answers, ours beside torch's, in one run.

A round trip costs two messages and two wake-ups of a sleeping thread; Python adds its work on both
sides, and looking a moment before sleeping (spinning.py) saves most of the wake-ups. The number
that means something is the ratio to torch's C++ client and server on the same machine at the same
moment. Batches of both take turns, and the best batch of each counts: a busy machine slows down
both, but seldom all batches.

    python -m teachdist.stores.bench
"""

import os
import time
from multiprocessing import get_context

import torch.distributed as dist

from teachdist.stores.tcp_store.tcp_store import TCPStore

_CALLS = {
    "add": lambda store: store.add("counter", 1),
    "get": lambda store: store.get("value"),
    "check": lambda store: store.check(["value"]),
}


def measure(batches=200, calls=20):
    """Microseconds per call, and ratios, of both TCPStores; client and server in two processes.

    Returns:
        ``{"add": {"ours": us, "torch": us, "ratio": ours / torch}, ...}``
    """
    ours = TCPStore("127.0.0.1", 0, is_master=True)
    torchs = dist.TCPStore("127.0.0.1", 0, is_master=True)
    context = get_context("spawn")
    results = context.SimpleQueue()
    client = context.Process(
        target=_client, args=(ours.port, torchs.port, batches, calls, results), daemon=True
    )
    client.start()
    times = results.get()
    client.join()
    ours.close()
    for row in times.values():
        row["ratio"] = row["ours"] / row["torch"]
    return times


def _client(our_port, torchs_port, batches, calls, results):
    stores = {
        "ours": TCPStore("127.0.0.1", our_port),
        "torch": dist.TCPStore("127.0.0.1", torchs_port),
    }
    times = {call: dict.fromkeys(stores, float("inf")) for call in _CALLS}
    for store in stores.values():
        store.set("value", "v" * 20)
    for _ in range(batches):
        for call, do in _CALLS.items():
            for whose, store in stores.items():
                start = time.perf_counter()
                for _ in range(calls):
                    do(store)
                took = (time.perf_counter() - start) / calls * 1e6
                times[call][whose] = min(times[call][whose], took)
    results.put(times)


def main():
    """Print the table."""
    lines = [f"{'call':8}{'ours':>10}{'torch':>10}{'ratio':>8}"]
    for call, row in measure().items():
        lines.append(f"{call:8}{row['ours']:7.1f} us{row['torch']:7.1f} us{row['ratio']:8.2f}")
    os.write(1, ("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
