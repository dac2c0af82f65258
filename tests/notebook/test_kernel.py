"""What only a real kernel shows: Ctrl-C, live output, completion, pictures."""

import os
import time

import pytest
from clusters import BACKEND, RANKS, needs_release
from jupyter_client.manager import start_new_kernel

from teachdist.notebook.magics import SHARED

DEADLINE = 60
NOT_THERE = "Not there: ranks 1 and 2 are"


class Kernel:
    """A kernel whose notebook has started ranks in the shared cluster."""

    def __init__(self, environment):
        self.manager, self.client = start_new_kernel(
            kernel_name="python3", env={**os.environ, **environment}
        )

    def run(self, code, until=None):
        """Messages that a cell sends; ``until(message)`` true: interrupt the kernel then."""
        request = self.client.execute(code)
        messages, self.aside = [], []  # the cell's, and those of others
        while True:
            message = self.client.get_iopub_msg(timeout=DEADLINE)
            if message["parent_header"].get("msg_id") != request:
                self.aside.append((message["msg_type"], message["content"]))
                if until is not None and until("", {}):
                    until = None
                    self.manager.interrupt_kernel()
                continue
            messages.append((message["msg_type"], message["content"]))
            if until is not None and until(*messages[-1]):
                until = None
                self.manager.interrupt_kernel()
            if messages[-1] == ("status", {"execution_state": "idle"}):
                return messages

    def subshell(self):
        """The id of a new subshell."""
        request = self.client.session.msg("create_subshell_request")
        self.client.control_channel.send(request)
        return self.client.get_control_msg(timeout=DEADLINE)["content"]["subshell_id"]

    def ask_aside(self, code, subshell):
        """Send code to a subshell."""
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
        request = self.client.session.msg("execute_request", content)
        request["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(request)

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


def cell_number(messages):
    return next(c["execution_count"] for kind, c in messages if kind == "execute_input")


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
    [error] = [content for kind, content in messages if kind == "error"]
    assert error["traceback"] == [
        "interrupted",
        f"ranks 0-{RANKS - 1}: stopped at cell {cell_number(messages)}, line 5: time.sleep(600)",
    ]
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


@needs_release
def test_a_cell_that_hangs_says_why_and_a_subshell_answers(kernel):
    """A kernel that waits for ranks executes no other cell, but in a subshell."""
    subshell = kernel.subshell()
    hang = "%%ranks\nif rank == 0: dist.barrier()"
    asked = []

    def answered(kind, content):
        if not asked and kind == "stream" and NOT_THERE in content["text"]:
            asked.append(True)
            kernel.ask_aside("%ranks status", subshell)
        return NOT_THERE in plain_of(kernel.aside)

    messages = kernel.run(hang, until=answered)
    assert errors_of(messages) == ["KeyboardInterrupt"]
    assert "[rank 0] cell" in plain_of(kernel.aside)


def test_completion_knows_the_names_of_the_ranks(kernel):
    kernel.run("%%ranks\nonly_on_ranks = 1")
    deadline = time.monotonic() + DEADLINE
    while "only_on_ranks" not in matches(kernel, "%%ranks\nx = only_on_"):
        assert time.monotonic() < deadline, "the first answers may come too late, not all"
    assert "only_on_ranks" not in matches(kernel, "x = only_on_")
    assert "dist.all_reduce" in matches(kernel, "%%ranks\ny = f(dist.all_red")
    assert matches(kernel, "%%ranks --tr") == ["--trace"]
    assert matches(kernel, "%ranks st") == ["status", "stop"]


def test_help_comes_from_the_ranks(kernel):
    kernel.run("%%ranks\ndef on_ranks_only():\n    'Says so.'")
    for code, found in (("%%ranks\non_ranks_only", True), ("on_ranks_only", False)):
        request = kernel.client.inspect(code, len(code))
        reply = reply_to(kernel, request)
        assert reply["found"] == found
        assert ("Says so." in str(reply["data"])) == found


def matches(kernel, code):
    return reply_to(kernel, kernel.client.complete(code, len(code)))["matches"]


def reply_to(kernel, request):
    while True:
        reply = kernel.client.get_shell_msg(timeout=DEADLINE)
        if reply["parent_header"]["msg_id"] == request:
            return reply["content"]


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
