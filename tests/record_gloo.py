"""What gloo says of the hang gallery's broken programs, written into each hang.toml's table [gloo].

    python tests/record_gloo.py             all of them
    python tests/record_gloo.py 02 24b      some

Not a test: these words are not ours, and differ from run to run (who times out first, who sees a
connection close). They are recorded so that a reader can compare.
"""

import contextlib
import os
import re
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from ranks import RankPool, RankTimeoutError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "hangs"))
import gallery

LIMIT = 5.0  # seconds that gloo may wait; by default they are 1800

# They use what only teachdist has, or classes of teachdist's that torch has, too.
OURS_TO_TORCHS = {
    "from teachdist import DeviceMesh": "from torch.distributed.device_mesh import DeviceMesh",
    "from teachdist.stores import": "from torch.distributed import",
    "from teachdist.diagnose.poison import": "from contextlib import nullcontext as",
}


def on_gloo(rank, source, n, interrupted):
    """One rank of the program, as torchrun would run it: (what it raised, as a line, seconds)."""
    for ours, torchs in OURS_TO_TORCHS.items():
        source = source.replace(ours, torchs)
    store = dist.FileStore(os.path.join(os.environ["RANKS_DIRECTORY"], "gloo"), n)
    limit = timedelta(seconds=LIMIT)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n, timeout=limit)
    if rank in interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    names, began, said = {"__name__": "broken"}, time.monotonic(), ""
    try:
        exec(compile(source, "broken.py", "exec"), names)
        names["main"](rank)
    except BaseException as error:  # noqa: BLE001  it is what is recorded
        text = str(error) or failing_line(error, source)
        said = f"{type(error).__name__}: {text}".splitlines()[0]
    took = time.monotonic() - began
    with contextlib.suppress(Exception):  # a script that fails ends, and its connections close
        dist.destroy_process_group()
    return said, took


def _on_gloo(*args):
    return on_gloo(int(os.environ["RANK"]), *args)


def failing_line(error, source):
    """For an assert without words: the line."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    return source.splitlines()[last.tb_lineno - 1].strip()


def gloos(text):
    """Without addresses, the paths of who built torch, and advice that is always the same."""
    text = text.partition(". This is typically caused by")[0]
    text = re.sub(r"(?<=at )/\S*/(\w+\.cc):\d+", r"\1", text)
    text = re.sub(r"^.*Exception|\[/[^\]]*?([^/\]]+\.(?:cc|cpp|h)):\d+\]", r"[\1]", text)
    text = re.sub(r"\[(?:[\d.]+|::1?|[0-9a-f:]+|localhost|\w+)\]:\d+", "[an address]", text)
    return re.sub(r"0x[0-9a-f]+", "0x...", text)


def try_out(name):
    """Run the broken program on gloo and write down what each rank said."""
    hang = gallery.about(name)
    n = hang["ranks"]
    with RankPool(n, backend=None) as pool:
        place = (gallery.source(name, "broken"), n, hang["teachdist"].get("interrupts", ()))
        outcomes = pool.outcomes(_on_gloo, *place, timeout=30)
    words, slow = {}, False
    for rank, outcome in enumerate(outcomes):
        if isinstance(outcome, RankTimeoutError):
            words[rank] = "(it hangs: nothing within 30 s)"
        elif isinstance(outcome, Exception):
            words[rank] = "(its process has ended)"
        else:
            said, took = outcome
            slow = slow or (bool(said) and took > LIMIT - 1)
            words[rank] = gloos(said)
    write_gloo(name, words, slow)


def write_gloo(name, words, slow):
    """The table [gloo]: what each rank said; "" if nothing went wrong there."""
    path = gallery.FOLDER / name / "hang.toml"
    before = path.read_text("utf-8").partition("\n[gloo]\n")[0].rstrip()
    ours = gallery.about(name)["teachdist"]
    works = ours["verdict"] == "works"
    alike = not works and all(ours["says"].strip() in text for text in words.values())
    if alike or (works and not any(words.values())):
        path.write_text(before + "\n", "utf-8")  # no difference
        return
    said = {}
    for rank, text in words.items():
        said.setdefault(text or "(nothing: it ends as if all were well)", []).append(rank)
    lines = [f"rank{'s' * (len(r) > 1)} {', '.join(map(str, r))}: {t}" for t, r in said.items()]
    after = f"after = {LIMIT}\n" if slow else ""
    text = "\n".join(lines).replace("\\", "\\\\")
    path.write_text(f'{before}\n\n[gloo]\n{after}says = """\n{text}\n"""\n', "utf-8")


if __name__ == "__main__":
    wanted = tuple(f"{each}-" for each in sys.argv[1:]) or ("",)
    for case in gallery.CASES:
        if case.startswith(wanted):
            try_out(case)
