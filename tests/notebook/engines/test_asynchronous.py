"""Cells that await."""

import pytest
from clusters import RANKS

from teachdist.notebook import RanksError


def said(asked):
    """What each rank said and answered, as text."""
    return [
        "".join(
            content if kind == "stdout" else content["data"]["text/plain"]
            for kind, content in task.items
        )
        for task in asked
    ]


@pytest.fixture
def run(cluster):
    def run(cell):
        asked = cluster.execute(cell)
        cluster.wait(asked)
        return said(asked)

    return run


def test_await_async_for_and_async_with(run):
    cell = """
import asyncio
async def count():
    for n in range(2):
        await asyncio.sleep(0)
        yield n
print("before")
async for n in count():
    print(n)
async with asyncio.Lock():
    x = torch.ones(1)
    dist.all_reduce(x)
x.item()
"""
    assert run(cell) == [f"before\n0\n1\n{float(RANKS)}"] * RANKS


def test_a_task_goes_on_between_cells(run):
    run("import asyncio\ntask = asyncio.create_task(asyncio.sleep(0, 'done'))")
    assert run("await task") == ["'done'"] * RANKS


HANGS = {
    "awaits": ("await asyncio.sleep(100)", "await asyncio.sleep(100)"),
    "is blocked": ("await asyncio.sleep(0); print('here'); time.sleep(100)", "time.sleep(100)"),
    "waits for a task that is blocked": ("await asyncio.gather(block(), block())", "cell"),
}


@pytest.mark.parametrize("cell", HANGS.values(), ids=HANGS)
def test_an_interrupt_ends_a_cell_that(cell, cluster, run):
    text, place = cell
    head = "import asyncio, time\nasync def block():\n    time.sleep(100)\n"
    asked = cluster.execute(head + "print('begun', flush=True)\n" + text)
    sent = []

    def interrupt(tasks):
        if not sent and all("begun" in str(task.items) for task in tasks):
            sent.append(cluster.interrupt())

    with pytest.raises(RanksError, match="KeyboardInterrupt: cell") as caught:
        cluster.wait(asked, interrupt)
    assert {one.name for one in caught.value.failures} == {"KeyboardInterrupt"}
    assert all(place in one.text for one in caught.value.failures)
    assert run("rank") == [str(rank) for rank in range(RANKS)]


def test_a_cancellation_of_ones_own_is_none(cluster, run):
    with pytest.raises(RanksError) as caught:
        run("import asyncio\nf = asyncio.ensure_future(asyncio.sleep(9))\nf.cancel()\nawait f")
    assert {one.name for one in caught.value.failures} == {"CancelledError"}


def test_asyncio_run_says_what_to_write(run):
    with pytest.raises(RanksError, match=r"a cell runs on one: write await f\(\) for asyncio.run"):
        run("import asyncio\nsleep = asyncio.sleep(0)\nasyncio.run(sleep)")
    run("await sleep")
