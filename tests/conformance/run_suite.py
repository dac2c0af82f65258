#!/usr/bin/env python3
"""Run torch's own distributed test suite against a CPU backend, one JSON line per test."""

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
import time
import tomllib
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import suite as suites

BASELINE = Path(__file__).with_name("baseline.toml")


def parse_args():
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--backend", default="teachdist")
    p.add_argument("--out", help="JSON-lines file; tests that it has are not run again")
    p.add_argument("-k", dest="pattern", default="", help="regular expression on test names")
    p.add_argument("--list", action="store_true", help="print the selected test names and stop")
    p.add_argument("--gate", default="gloo", choices=["gloo", "mpi"], help="whose skips apply")
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--timeout", type=int, default=60, help="seconds before a test is killed")
    p.add_argument("--shard", default="0/1", help="i/n: run every n-th test, starting at i")
    p.add_argument("--only", nargs="+", help="only the names in these lists of baseline.toml")
    p.add_argument("--logs", help="directory for the output of failed tests")
    p.add_argument("--compare", nargs=2, metavar=("BASELINE", "CANDIDATE"))
    p.add_argument("--baseline", nargs="+", metavar="PASS=FILE", help="print a new baseline.toml")
    return p.parse_args()


class Recorder(unittest.TestResult):
    """Keeps the status and the reason of the one test it saw."""

    def __init__(self):
        super().__init__()
        self.status, self.reason = "pass", ""

    def addSkip(self, test, reason):  # noqa: N802  unittest's name
        self.status, self.reason = "skip", reason

    def addError(self, test, err):  # noqa: N802
        text = self._exc_info_to_string(err, test)
        self.status = "timeout" if "terminated or timed out after" in text else "fail"
        if re.search(r"exit code (but got )?-(4|6|7|8|11)\b", text):
            self.status = "crash"
        self.reason = text

    addFailure = addError  # noqa: N815

    def addUnexpectedSuccess(self, test):  # noqa: N802
        self.status, self.reason = "fail", "unexpected success"


def last_error(text):
    """The most telling line of a traceback: the exception of the first process that failed."""
    lines = [x for x in text.splitlines() if re.match(r"^\S*(Error|Exception|Interrupt|Exit)\b", x)]
    inner = [x for x in lines if "exited with error code" not in x]
    return (inner or lines or text.strip().splitlines()[-1:] or [""])[0][:300]


@contextlib.contextmanager
def captured():
    """Everything the test and its processes print, as bytes (file descriptors 1 and 2)."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        box = []
        try:
            yield box
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            for fd in saved:
                os.close(fd)
            file.seek(0)
            box.append(file.read())


def run_one(cls, name):
    """Run one test; its record."""
    result = Recorder()
    start = time.monotonic()
    case = cls(name)
    with captured() as output:
        case.run(result)
        for process in getattr(case, "processes", []):
            process.kill()
    record = {"test": name, "status": result.status, "secs": round(time.monotonic() - start, 2)}
    if result.status == "skip":
        record["reason"] = result.reason
    elif result.status != "pass":
        record["log"] = result.reason + "\n" + output[0].decode(errors="replace")
        record["reason"] = last_error(record["log"])
    return record


def read_records(path):
    """The records of a JSON-lines file, by test."""
    with open(path) as file:
        return {r["test"]: r for r in map(json.loads, file)}


def baseline(name):
    """The names of the tests that must pass in a pass."""
    return tomllib.loads(BASELINE.read_text())[name]


def run(args, temp):
    """Run the selected tests; the number of those that failed."""
    os.environ.update(
        WORLD_SIZE=str(args.world_size),
        TEMP_DIR=temp,
        OMP_NUM_THREADS="1",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(args.timeout),
        CUDA_VISIBLE_DEVICES="",
    )
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    Path(temp, "barrier").touch()
    modules = {"gloo": [], "tiny": ["teachdist.tiny"]}.get(
        args.backend, [f"{args.backend}.backend"]
    )
    cls = suites.case_class(suites.load(args.backend, args.gate, modules))
    names = unittest.TestLoader().getTestCaseNames(cls)
    names = [name for name in names if re.search(args.pattern, name)]
    if args.only:
        wanted = {name for part in args.only for name in baseline(part)}
        names = [name for name in names if name in wanted]
    i, n = map(int, args.shard.split("/"))
    names = names[i::n]
    if args.list:
        print(*names, sep="\n")
        return 0
    done = read_records(args.out) if args.out and os.path.exists(args.out) else {}
    with open(args.out, "a") if args.out else contextlib.nullcontext() as out:
        for k, name in enumerate(names):
            if name not in done:
                done[name] = run_one(cls, name)
                report(done[name], f"[{k + 1}/{len(names)}]", args.logs, out)
    print(json.dumps({"summary": Counter(r["status"] for r in done.values())}))
    return sum(r["status"] not in ("pass", "skip") for r in done.values())


def report(record, place, logs, out):
    """Print one line; write the record and the log."""
    log = record.pop("log", None)
    if log and logs:
        os.makedirs(logs, exist_ok=True)
        Path(logs, record["test"] + ".log").write_text(log)
    if out is not None:
        print(json.dumps(record), file=out, flush=True)
    reason = record.get("reason", "")[:200]
    print(
        f"{place} {record['status']:8} {record['secs']:6.1f}s {record['test']} {reason}", flush=True
    )


def compare(base, candidate):
    """Say what the baseline passes and the candidate does not; the number of these."""
    passed = [test for test, record in base.items() if record["status"] == "pass"]
    worse = [test for test in passed if candidate.get(test, {}).get("status") != "pass"]
    for test in sorted(worse):
        print(json.dumps(candidate.get(test, {"test": test, "status": "missing"})))
    print(json.dumps({"baseline passes": len(passed), "of these not": len(worse)}))
    return len(worse)


def new_baseline(passes):
    """Print baseline.toml: for each pass the tests that passed."""
    for entry in passes:
        name, _, path = entry.partition("=")
        tests = sorted(t for t, r in read_records(path).items() if r["status"] == "pass")
        print(f"{name} = [", *(f'    "{test}",' for test in tests), "]", sep="\n")


def main():
    """Run, compare, or print a baseline."""
    args = parse_args()
    if args.compare:
        return 1 if compare(*map(read_records, args.compare)) else 0
    if args.baseline:
        return new_baseline(args.baseline)
    with tempfile.TemporaryDirectory(prefix="conformance-") as temp:
        return 1 if run(args, temp) else 0


if __name__ == "__main__":
    sys.exit(main())
