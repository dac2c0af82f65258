"""A store server in a process of its own: ``python -m teachdist.stores --port 29500``.

It prints the address on which it listens and serves until Ctrl-C or SIGTERM. It needs no torch.
"""

import argparse
import os
import signal
import sys

from teachdist.stores.tcp_store.server import Server


def main(arguments=None):
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m teachdist.stores", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on ('' for all)")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="NETWORK",
        help="take connections from this network only, as 10.0.0.0/8; may be given several times",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    stop = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = Server(given.host, given.port, allow=given.allow)
    os.write(sys.stdout.fileno(), f"{server.host}:{server.port}\n".encode())
    signal.sigwait(stop)
    server.close()


if __name__ == "__main__":
    main()
