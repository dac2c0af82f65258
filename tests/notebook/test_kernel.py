"""What only a real kernel shows: Ctrl-C, live output, completion, pictures."""

import os
import time

import pytest
from clusters import BACKEND, RANKS
from jupyter_client.manager import start_new_kernel

from teachdist.notebook.magics import SHARED

DEADLINE = 60


class Kernel:
    """A kernel whose notebook has started ranks in the shared cluster."""

    def __init__(self, environment):
        self.manager, self.client = start_new_kernel(
            kernel_name="python3", env={**os.environ, **environment}
        )

    def run(self, code, until=None):
        """Messages that a cell sends; ``until(message)`` true: interrupt the kernel then."""
        request = self.client.execute(code)
        messages = []
        while True:
            message = self.client.get_iopub_msg(timeout=DEADLINE)
            if message["parent_header"].get("msg_id") != request:
                continue
            messages.append((message["msg_type"], message["content"]))
            if until is not None and until(*messages[-1]):
                until = None
                self.manager.interrupt_kernel()
            if messages[-1] == ("status", {"execution_state": "idle"}):
                return messages

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel()


@pytest.fixture(scope="module")
def kernel(shared_cluster):
    environment = {SHARED: str(shared_cluster.connection_file), "TEACHDIST_LIVE": "1"}
    kernel = Kernel(environment)
    started = kernel.run(f"%load_ext teachdist\n%ranks {RANKS} --backend {BACKEND}")
    assert f"{RANKS} ranks ready" in text_of(started)
    yield kernel
    kernel.stop()
    shared_cluster.restart()


def text_of(messages):
    return "".join(content["text"] for kind, content in messages if kind == "stream")


def plain_of(messages):
    """What is displayed, as text."""
    shown = [content["data"] for kind, content in messages if kind == "display_data"]
    return "".join(data.get("text/plain", "") for data in shown)


def errors_of(messages):
    return [content["ename"] for kind, content in messages if kind == "error"]


def test_live_output_is_replaced_by_the_final_one(kernel):
    messages = kernel.run(
        "%%ranks\nimport time\nprint('step', rank)\ntime.sleep(1.5)\nprint('end')"
    )
    kinds = [kind for kind, _ in messages]
    last_clear = len(kinds) - 1 - kinds[::-1].index("clear_output")
    assert "at work ..." in text_of(messages[:last_clear])
    final = text_of(messages[last_clear:])
    assert final.splitlines() == [
        line for r in range(RANKS) for line in (f"[rank {r}] step {r}", "         end")
    ]


def test_control_c_ends_the_cell_on_every_rank(kernel):
    def seen(kind, content):
        return kind == "stream" and "ready to hang" in content["text"]

    began = time.monotonic()
    cell = "%%ranks\nimport time\nprint('ready to hang')\nkept = 1\ntime.sleep(600)"
    messages = kernel.run(cell, until=seen)
    assert errors_of(messages) == ["KeyboardInterrupt"]
    assert time.monotonic() - began < DEADLINE
    while f"[ranks 0-{RANKS - 1}] idle" not in (said := plain_of(kernel.run("%ranks status"))):
        assert time.monotonic() - began < DEADLINE, said
    assert text_of(kernel.run("%%ranks\nkept")) == f"[ranks 0-{RANKS - 1}] 1\n"


def test_a_failing_cell_stops_the_notebook(kernel):
    messages = kernel.run("%%ranks\nif rank == 0: 1 / 0")
    assert errors_of(messages) == ["RanksError"]
    [error] = [content for kind, content in messages if kind == "error"]
    assert error["evalue"] == "rank 0: ZeroDivisionError: division by zero"
    assert error["traceback"][0] == "rank 0 failed first:"


def test_completion_knows_the_names_of_the_ranks(kernel):
    kernel.run("%%ranks\nonly_on_ranks = 1")
    deadline = time.monotonic() + DEADLINE
    while "only_on_ranks" not in matches(kernel, "%%ranks\nx = only_on_"):
        assert time.monotonic() < deadline, "the first answers may come too late, not all"
    assert "only_on_ranks" not in matches(kernel, "x = only_on_")


def matches(kernel, code):
    request = kernel.client.complete(code, len(code))
    while True:
        reply = kernel.client.get_shell_msg(timeout=DEADLINE)
        if reply["parent_header"]["msg_id"] == request:
            return reply["content"]["matches"]


def test_pictures_of_each_rank(kernel):
    cell = (
        "%%ranks\nfrom IPython.display import HTML, display\ndisplay(HTML(f'<b>{rank // 2}</b>'))"
    )
    shown = [
        content["data"].get("text/html") or content["data"]
        for kind, content in kernel.run(cell)
        if kind == "display_data"
    ]
    assert shown == ["<b>0</b>", "<b>1</b>"]
