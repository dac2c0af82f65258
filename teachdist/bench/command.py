"""The command line of the benchmark."""

import argparse
import importlib
import multiprocessing
import queue
import socket
import sys

from teachdist.bench import report
from teachdist.bench.cases import CASES

FULL = (8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
QUICK = (8, 1 << 16, 1 << 20)


def fill(parser):
    """Describe the arguments."""
    parser.add_argument("--ranks", type=numbers, default=[2, 4], help="world sizes: 2,4")
    parser.add_argument("--threads", type=numbers, default=[1], help="torch's threads: 1,2")
    parser.add_argument("--ops", type=names, default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--sizes", type=numbers, help="bytes: 8,65536 (8 B to 64 MB when left out)")
    parser.add_argument("--quick", action="store_true", help="three sizes, short blocks")
    parser.add_argument(
        "--links", type=names, default=["shm"], help="shm, tcp or both (shm,tcp); the first counts"
    )
    parser.add_argument("--json", metavar="FILE", help="write all that was measured")
    parser.add_argument("--plot", metavar="FILE", help="draw the ratios (needs matplotlib)")


def numbers(text):
    """1,2 as a list."""
    return [int(part) for part in text.split(",")]


def names(text):
    """shm,tcp as a list."""
    return text.split(",")


def main(arguments=None):
    """Run the benchmark; the exit status."""
    if not isinstance(arguments, argparse.Namespace):
        given = sys.argv[1:] if arguments is None else arguments
        for other in ("--delays", "--rehearsed", "--predicted"):
            if other in given:
                module = importlib.import_module(f"teachdist.bench.{other.removeprefix('--')}")
                return module.main([word for word in given if word != other])
        parser = argparse.ArgumentParser(prog="teachdist bench", description="compare with gloo")
        fill(parser)
        arguments = parser.parse_args(arguments)
    unknown = [op for op in arguments.ops if op not in CASES]
    unknown += [kind for kind in arguments.links if kind not in ("shm", "tcp")]
    if unknown:
        sys.exit(f"not known: {', '.join(unknown)}; --help lists what is")
    plan = {
        "ops": arguments.ops,
        "sizes": arguments.sizes or (QUICK if arguments.quick else FULL),
        "threads": arguments.threads,
        "links": arguments.links,
        "seconds": 0.01 if arguments.quick else 0.03,
    }
    say(report.header(plan["links"]))
    rows = []
    for ranks in arguments.ranks:
        for row in run(ranks, plan):
            rows.append(row)
            say(report.line(row, plan["links"]))
    if arguments.json:
        report.write_json(arguments.json, rows, plan, command(plan, arguments.ranks))
    if arguments.plot:
        report.plot(arguments.plot, rows, plan["links"][0])
    return 0


def command(plan, ranks):
    """The command line that measures the same again."""

    def listed(values):
        return ",".join(map(str, values))

    words = ["teachdist bench", "--ranks", listed(ranks), "--threads", listed(plan["threads"])]
    if plan["ops"] != list(CASES):
        words += ["--ops", listed(plan["ops"])]
    words += ["--sizes", listed(plan["sizes"]), "--links", listed(plan["links"])]
    return " ".join(words)


def say(line):
    """A line of the table, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(ranks, plan):
    """The rows of one world size, as they come."""
    from teachdist.bench.measure import rank_main

    context = multiprocessing.get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = context.Queue()
    processes = [
        context.Process(target=rank_main, args=(r, ranks, port, plan, results), daemon=True)
        for r in range(ranks)
    ]
    for process in processes:
        process.start()
    try:
        while True:
            try:
                row = results.get(timeout=1)
            except queue.Empty:
                dead = [r for r, p in enumerate(processes) if p.exitcode]
                if dead:
                    raise RuntimeError(
                        f"rank {dead[0]} of the benchmark failed; see above"
                    ) from None
                continue
            if row is None:
                break
            yield row
        for process in processes:
            process.join(timeout=10)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
