"""What rehearsing costs: the nine programs of examples/rehearse on 8 to 1,024 virtual ranks.

    teachdist bench --rehearsed                       # 8, 64, 256; and four programs at 1,024
    teachdist bench --rehearsed --ranks 64 --programs ddp fsdp2

Each program runs in a process of its own, so that its CPU seconds and its peak of memory are its
own. Beside them stand the targets, and the largest difference of any parameter on any rank from the
same training in one process.
"""

import argparse
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "rehearse"
PROGRAMS = (
    "collectives", "ring", "ddp", "zero", "fsdp2", "hybrid", "tensor_parallel", "pipeline",
    "checkpoint",
)  # fmt: skip
LARGE = {
    "ddp": (20, 1500),
    "ring": (60, None),
    "tensor_parallel": (60, None),
    "pipeline": (60, None),
}
LARGE["fsdp2"] = 120, 4000
TARGETS = {64: (10, None), 256: (30, 1100)}  # CPU seconds, MB


def target(name, ranks):
    """(CPU seconds, MB) that a program may take; None where nothing is asked."""
    return LARGE.get(name, (None, None)) if ranks > 256 else TARGETS.get(ranks, (None, None))


def difference(results, expected):
    """The largest difference of any parameter on any rank."""
    return max(
        (value - expected[name]).abs().max().item()
        for result in results
        for name, value in result.items()
    )


def run(name, ranks):
    """Rehearse one program here: the difference from one process, None if it checks itself."""
    from teachdist import rehearse

    sys.path.insert(0, str(FOLDER))
    program, model = importlib.import_module(name), importlib.import_module("model")

    def rehearsed(*args, ranks=ranks):
        return rehearse(program.main, *args, ranks=ranks, init=False).results

    if name in ("collectives", "ring"):
        rehearsed()
        return None
    if name == "checkpoint":
        with tempfile.TemporaryDirectory() as folder:
            saved = rehearsed(folder, True)[0]
            return difference(rehearsed(folder, False, ranks=ranks // 2), saved)
    if name == "pipeline":
        found = difference(rehearsed(), program.alone(ranks))
        if ranks > 256:
            return found
        return max(found, difference(rehearsed(True), program.alone(ranks, True)))
    if name == "tensor_parallel":
        return difference(rehearsed(), model.alone(ranks // min(8, ranks)))
    momentum = 0.9 if name == "zero" else 0.0
    arguments = [False] if name == "ddp" and ranks > 256 else []  # there without join
    return difference(rehearsed(*arguments), model.alone(ranks, momentum=momentum))


def measured(name, ranks):
    """Run one program in a process of its own: its figures as a dict."""
    command = [sys.executable, "-W", "ignore", "-m", "teachdist.bench.rehearsed"]
    command += ["--one", name, "--ranks", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"failed": lines[-1] if lines else f"exit {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def _one(name, ranks):
    import torch.distributed  # noqa: F401  what every program needs is not part of the figure

    before, began = time.process_time(), time.perf_counter()
    found = run(name, ranks)
    seconds, wall = time.process_time() - before, time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu": seconds, "wall": wall, "mb": peak, "difference": found}))
    return 0


def _row(name, ranks, found):
    most, memory = target(name, ranks)
    if "failed" in found:
        return f"{name:16} {ranks:5}  {found['failed']}"
    seconds = f"{found['cpu']:7.1f} s" + (f" of {most:3}" if most else "       ")
    megabytes = f"{found['mb']:7.0f} MB" + (f" of {memory:4}" if memory else "        ")
    over = (most and found["cpu"] > most) or (memory and found["mb"] > memory)
    off = "checks itself" if found["difference"] is None else f"{found['difference']:.1e}"
    return f"{name:16} {ranks:5}  {seconds}  {megabytes}  {off}{'   OVER' if over else ''}"


def main(argv=None):
    """The command `teachdist bench --rehearsed`."""
    parser = argparse.ArgumentParser(prog="teachdist bench --rehearsed", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 256, 1024])
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=PROGRAMS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.one:
        return _one(given.one, given.ranks[0])
    if not FOLDER.is_dir():
        raise ValueError(f"the programs are not part of an installation: no folder {FOLDER}")
    print(f"{'program':16} ranks  CPU         peak        from one process")
    for ranks in given.ranks:
        for name in given.programs:
            if ranks <= 256 or name in LARGE:
                print(_row(name, ranks, measured(name, ranks)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
