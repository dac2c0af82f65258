"""Other launchers by name: mpiexec and ssh, on the loopback. Skipped where missing."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from teachdist import Cluster

pytestmark = pytest.mark.timeout(400)
ROOT = str(Path(__file__).parents[2])
MPIEXEC = shutil.which("mpiexec")
SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))


def total():
    import torch
    import torch.distributed as dist

    x = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(x)
    return x.item()


@pytest.mark.skipif(MPIEXEC is None, reason="needs mpiexec (Debian: openmpi-bin)")
def test_mpi_gives_ranks_their_mpi_rank(monkeypatch):
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    monkeypatch.setenv("OMPI_MCA_rmaps_base_oversubscribe", "1")
    with Cluster(2, "gloo", launcher="mpi") as cluster:
        assert cluster.run(total) == [3, 3]
        assert cluster.run(os.getenv, "OMPI_COMM_WORLD_RANK") == ["0", "1"]
        assert cluster.client.ids == [0, 1]


@pytest.fixture
def ssh(tmp_path):
    """Arguments for ssh to a server that this test has started on the loopback."""
    for key in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / key)]
        subprocess.run(command, check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = tmp_path / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {tmp_path}/host\nPidFile none\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    )
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    with subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert server.poll() is None, "sshd ended"
            assert time.monotonic() < deadline
        yield [
            *("-o", f"Port={port}", "-o", f"IdentityFile={tmp_path}/user"),
            *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
            *("-F", "none", "-o", "LogLevel=ERROR"),
        ]
        server.terminate()


@pytest.mark.skipif(SSHD is None, reason="needs sshd (Debian: openssh-server)")
def test_ssh_by_a_profile(ssh, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    profile = tmp_path / "profile_class"
    profile.mkdir()
    environment = [f"PYTHONPATH={ROOT}", "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo"]
    command = ["env", *environment, sys.executable, "-m", "ipyparallel.engine"]
    (profile / "ipcluster_config.py").write_text(
        f"c.SSHEngineSetLauncher.engines = {{'{getpass.getuser()}@127.0.0.1': 2}}\n"
        f"c.SSHLauncher.ssh_args = {ssh!r}\n"
        f"c.SSHLauncher.scp_args = {ssh!r}\n"
        f"c.SSHLauncher.remote_python = {sys.executable!r}\n"
        f"c.SSHEngineLauncher.engine_cmd = {command!r}\n"
        f"c.SSHEngineSetLauncher.engine_cmd = {command!r}\n"
    )
    with Cluster(2, "gloo", launcher="ssh", profile="class") as cluster:
        assert cluster.pull("rank") == [0, 1]
        assert all(cluster.run(os.getenv, "SSH_CONNECTION"))
