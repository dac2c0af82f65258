import signal
import socket
import subprocess
import sys

import pytest

from teachdist.stores.tcp_store import wire


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_server_in_a_process_of_its_own(end):
    command = [sys.executable, "-m", "teachdist.stores", "--allow", "127.0.0.0/8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        host, _, port = process.stdout.readline().strip().rpartition(":")
        assert host == "127.0.0.1"
        with socket.create_connection((host, int(port)), timeout=20) as sock:
            sock.sendall(wire.request("VALIDATE", wire.MAGIC) + wire.request("PING", 5))
            assert sock.recv(4) == (5).to_bytes(4, "little")
            process.send_signal(end)
            assert sock.recv(1) == b""
        assert process.wait(20) == 0
