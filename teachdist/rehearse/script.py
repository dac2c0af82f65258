"""A script that was written for torchrun, on virtual ranks.

    teachdist rehearse train.py --ranks 256 --topology "32 hosts x 8" -- --batch-size 8

Each rank runs the script as its own `__main__`, with the environment that torchrun would set and
modules of its own from the script's folder. Lines that ranks print one after the other, and that
are equal, are shown once.
"""

import argparse
import io
import sys
import traceback
import types
from pathlib import Path

from teachdist.rehearse.answer import Rehearsal
from teachdist.rehearse.errors import BrokenRules
from teachdist.rehearse.run import begin, failure, kept, make_job
from teachdist.rules import RULES
from teachdist.words import ranks_words


class Lines:
    """Lines of all ranks on one stream; equal ones that follow each other are one."""

    def __init__(self, stream):
        self._stream = stream
        self._last, self._ranks = None, []

    def add(self, rank, line):
        """A rank has printed a whole line."""
        if line != self._last or rank in self._ranks:
            self.flush()
            self._last = line
        self._ranks.append(rank)

    def flush(self):
        """Show what is held back."""
        if self._ranks:
            who = ranks_words(self._ranks).replace("ranks ", "").replace("rank ", "")
            print(f"[{who}] {self._last}", file=self._stream, flush=True)
        self._last, self._ranks = None, []


class Output(io.TextIOBase):
    """What one rank's sys.stdout is."""

    def __init__(self, rank, lines):
        super().__init__()
        self._rank, self._lines, self._rest = rank, lines, ""

    def writable(self):
        """It is."""
        return True

    def write(self, text):
        """Take text; whole lines are passed on."""
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self._lines.add(self._rank, line)
        return len(text)

    def end(self):
        """Pass on an unfinished line."""
        if self._rest:
            self.write("\n")


def run_script(path, arguments, job):
    """Run a script on all ranks of a job; a `Rehearsal`. Raises RehearsalError."""
    path = Path(path)
    code = compile(path.read_bytes(), str(path), "exec")
    job.folder = str(path.parent.resolve())
    out, err = Lines(sys.stdout), Lines(sys.stderr)
    sys.path.insert(0, job.folder)

    def main(rank):
        begin(rank)
        module = types.ModuleType("__main__")
        module.__file__ = str(path)
        module.__builtins__ = __builtins__
        sys.modules["__main__"] = module
        sys.argv = [str(path), *arguments]
        sys.stdout, sys.stderr = streams = Output(rank.number, out), Output(rank.number, err)
        try:
            exec(code, module.__dict__)
        finally:
            for stream in streams:
                stream.end()

    try:
        with job.playing():
            job.play(main)
    finally:
        out.flush()
        err.flush()
        sys.path.remove(job.folder)
    answer = Rehearsal(job)
    if any(rank.error is not None for rank in job.ranks):
        raise failure(job, answer)
    return answer


def main(argv=None):
    """The command `teachdist rehearse`."""
    parser = argparse.ArgumentParser(
        prog="teachdist rehearse",
        description="Run a script written for torchrun on virtual ranks of one process.",
        epilog="What follows the script's name (or --) is given to the script.",
    )
    parser.add_argument("--ranks", type=int, default=4, help="how many (4)")
    parser.add_argument("--topology", help='such as "32 hosts x 8", "nvlink", or a file')
    parser.add_argument("--clock", default="measured", choices=["measured", "modelled"])
    parser.add_argument("--device", help="for the modelled clock: h100, a100")
    parser.add_argument(
        "--device-as", choices=["cpu"], help="have programs for CUDA run on the CPU"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order in which ranks run (0)")
    parser.add_argument("--rules", choices=[*RULES], help="would it hang or differ there?")
    parser.add_argument("--timeline", metavar="FILE", help="write a timeline for Perfetto")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(_script_last(argv))
    how = {"device_as": given.device_as, "device": given.device, "values": True}
    job = make_job(given.ranks, given.topology, given.seed, given.clock, **how)
    arguments = [a for n, a in enumerate(given.arguments) if n or a != "--"]
    try:
        answer = run_script(given.script, arguments, job)
        if given.rules:
            kept(answer, given.rules)
    except Exception as error:
        cause = error.__cause__
        if isinstance(error, BrokenRules):
            print(error, file=sys.stderr)
            return 1
        if cause is None:
            raise
        traceback.print_exception(type(cause), cause, _in_script(cause.__traceback__))
        print(f"\n{error}", file=sys.stderr)
        return 1
    print(answer)
    if given.timeline:
        print(
            f"timeline: {answer.timeline().save(given.timeline)}; https://ui.perfetto.dev opens it"
        )
    return 0


def _in_script(trace):
    """The traceback from the script on, without what has called it."""
    first = trace
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "__main__":
            return trace
        trace = trace.tb_next
    return first


def _script_last(argv):
    """`train.py --ranks 8` as well as `--ranks 8 train.py`: our options may stand behind it."""
    ours, script, rest = [], [], list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*ours, *script, "--", *rest]
        name = word.partition("=")[0]
        if name in OPTIONS:
            ours += [word] if "=" in word else [word, *rest[:1]]
            rest = rest if "=" in word else rest[1:]
        elif not script and not word.startswith("-"):
            script = [word]
        elif script:
            return [*ours, *script, word, *rest]
        else:
            ours.append(word)
    return [*ours, *script]


OPTIONS = (
    "--ranks", "--topology", "--clock", "--device", "--device-as", "--seed", "--timeline",
    "--rules",
)  # fmt: skip
