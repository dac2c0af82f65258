"""The engine of a rank: ipyparallel's, with an id that is the rank, and a nanny that costs little.

ipyparallel gives each engine a nanny: a small process that passes signals on to a busy engine and
tells the hub at once when the engine is gone. Starting a Python for each costs half a second of
CPU. A fork server has everything imported already, so there the nanny is forked as well; it must
be forked before the engine starts its threads, and is told later what it needs to know.
"""

import atexit
import os
import pickle
import signal
import sys
import threading
import time

from ipyparallel.engine.app import IPEngine
from ipyparallel.engine.nanny import KernelNanny
from traitlets import default
from traitlets.config import Config

from teachdist.notebook.engines.orphan_guard import AGAIN

_WITHOUT_NANNY = (
    "the process that passes interrupts and questions on to rank {rank} has ended, and rank {rank} "
    "ends with it; next: %ranks restart, or Cluster.restart()\n"
)
_LAST_WORDS = 0.3  # seconds for them to leave this process


class RankEngine(IPEngine):
    """An engine that insists on its id."""

    forked_nanny = None
    _stopping = False

    @default("id")
    def _rank_by_launcher(self):
        """The rank that mpiexec or srun gave this process, if one of them started it."""
        for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
            if name in os.environ:
                return int(os.environ[name])
        return None

    async def complete_registration(self, *reply):
        """Register; end if the hub still holds our id for a process that just died."""
        wanted = self.id
        await super().complete_registration(*reply)
        if wanted is not None and self.id != wanted:
            os._exit(AGAIN)  # the fork server tries again, the nanny signs us off

    def redirect_output(self, iopub_socket):
        """Hear what is printed, also by C code and by children: what is written to 1 and 2."""
        # ipykernel leaves these descriptors to a pytest that it believes to run in. A rank is none,
        # even if a test has started it.
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        super().redirect_output(iopub_socket)

    def _signal_stop(self, *_):
        """On SIGTERM: end at once, also in the middle of a collective.

        Taking the interpreter apart costs a second per rank and frees what the operating system
        frees anyway; what asked to be told of the end is told.
        """
        self._stopping = True
        atexit._run_exitfuncs()
        if self.forked_nanny is not None:
            self.forked_nanny.dismiss()
        os._exit(0)

    def start_nanny(self, control_url):
        """Start the nanny, or brief the one that was forked."""
        if self.forked_nanny is None:
            url, nanny = super().start_nanny(control_url)
            self._end_with(nanny.stdout)
            return url, nanny
        url, answers = self.forked_nanny.brief(
            pid=os.getpid(),
            engine_id=self.id,
            identity=self.bident,
            control_url=control_url,
            curve_serverkey=self.curve_serverkey,
            curve_secretkey=self.curve_secretkey,
            curve_publickey=self.curve_publickey,
            registration_url=self.registration_url,
            config=Config(Session=self.config.Session),
        )
        self._end_with(answers)
        return url, answers

    def _end_with(self, nanny):
        """End when the nanny has: no signal would reach us any more, and no question.

        ``nanny``: a pipe that it holds open while it lives.
        """

        def watch():
            nanny.read()
            if not self._stopping:
                sys.stderr.write(_WITHOUT_NANNY.format(rank=self.id))
                sys.stderr.flush()
                content = {"id": self.id}
                self.session.send(self.registrar, "unregistration_request", content=content)
                time.sleep(_LAST_WORDS)
                os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, name="watch nanny", daemon=True).start()


class ForkedNanny:
    """A nanny process that waits to be told whom to watch. Make it before any thread."""

    def __init__(self):
        orders, self._orders = os.pipe()
        self._answer, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._orders)
            os.close(self._answer)
            _be_nanny(orders, answer)
        os.close(orders)
        os.close(answer)

    def brief(self, **whom):
        """Tell it; returns (the url it listens at, what must stay open while we live)."""
        with os.fdopen(self._orders, "wb") as orders:
            pickle.dump(whom, orders)
        answer = os.fdopen(self._answer)
        url = answer.readline().strip()
        if not url:
            raise RuntimeError("the nanny did not start")
        return url, answer

    def dismiss(self):
        """End it without a word to the hub, which ends as well."""
        os.kill(self.pid, signal.SIGKILL)


def _be_nanny(orders, answer):
    os.setsid()  # signals for the engine's group are not for us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with os.fdopen(orders, "rb") as told:
            whom = pickle.load(told)
        KernelNanny.main(**whom, pipe=os.fdopen(answer, "w", buffering=1))
    except EOFError:  # the engine ended before it could tell
        pass
    finally:
        os._exit(0)


def main():
    """Be an engine, by the command line."""
    RankEngine.launch_instance()
    sys.exit(0)


if __name__ == "__main__":
    main()
