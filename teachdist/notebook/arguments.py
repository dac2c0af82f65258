"""The words after ``%ranks`` and ``%%ranks``: read, explained by ``--help``, and completed.

Wrong ones are refused before anything happens, with the word that may have been meant.
"""

import argparse
import shlex

from IPython.core.error import UsageError

from teachdist.notebook.engines.processes import meant

# The line's words besides a number, and what they do.
CONTROLS = {
    "status": "where each rank is, also while ranks are blocked (in a subshell)",
    "who": "the names that cells have defined, rank by rank",
    "output": "all that the last cell has printed; output FILE writes it to a file",
    "interrupt": "end the cell on every rank, as the stop button does",
    "restart": "new processes for all ranks; what cells defined is gone",
    "stop": "end the ranks",
}


class Help(Exception):
    """Somebody asked; the text is the answer."""


class _Parser(argparse.ArgumentParser):
    """An argparse that answers with one line instead of ending the process."""

    def __init__(self, name, usage, **kwargs):
        kind = argparse.RawDescriptionHelpFormatter
        self.form = usage
        escaped = usage.replace("%", "%%")  # argparse formats it
        super().__init__(name, usage=escaped, formatter_class=kind, add_help=False, **kwargs)
        self.add_argument("-h", "--help", action="store_true", help="show this")

    def error(self, message):
        raise UsageError(f"{self.prog}: {message}; usage: {self.form}")

    def read(self, line):
        """The words of a line; raises ``Help`` if they ask for help."""
        given = self.parse_args(shlex.split(line, comments=True))
        if given.help:
            raise Help(self.format_help())
        return given

    def flags(self):
        """All flags."""
        return sorted(name for name in self._option_string_actions if name.startswith("--"))


def _line_parser():
    usage = (
        "%ranks N [--backend NAME] [--launcher NAME] [--rehearse [TOPOLOGY]], "
        f"or %ranks {' | '.join(CONTROLS)}"
    )
    words = "\n".join(f"  {word:<12} {text}" for word, text in CONTROLS.items())
    parser = _Parser(
        "%ranks",
        usage,
        description=f"Start ranks, or control those that run:\n\n{words}",
        epilog="A cell that begins with %%ranks runs on the ranks; see %%ranks --help.",
    )
    parser.add_argument("what", nargs="?", default="status", help="a number of ranks, or a word")
    parser.add_argument("more", nargs="?", help="a file, for output")
    parser.add_argument("--backend", default="teachdist", help="of the process group (teachdist)")
    parser.add_argument("--launcher", help="how ranks are started: fork, stock, mpi, ssh, slurm")
    parser.add_argument("--profile", help="an IPython profile with ipyparallel's configuration")
    parser.add_argument(
        "--rehearse",
        nargs="?",
        const="",
        metavar="TOPOLOGY",
        help="virtual ranks of this process, with the predicted times of TOPOLOGY",
    )
    return parser


def _cell_parser():
    parser = _Parser(
        "%%ranks",
        "%%ranks [--on RANKS] [--predict] [--trace] [--here] [--as-script [FILE]]",
        description="Run the cell on every rank.",
    )
    add = parser.add_argument
    add("--on", metavar="RANKS", help="run it on some ranks only, such as 0,2-3")
    add("--predict", action="store_true", help="compare with '# predict rank 0: ...' lines")
    add("--trace", action="store_true", help="draw the collectives that the cell called")
    add("--here", action="store_true", help="run it in the notebook's own process, too")
    add("--as-script", nargs="?", const="", metavar="FILE", help="the cells so far, for torchrun")
    return parser


LINE, CELL = _line_parser(), _cell_parser()


def line_words(line):
    """What ``%ranks`` is asked for. Raises UsageError, or ``Help``."""
    given = LINE.read(line)
    if given.what in CONTROLS:
        if given.more is not None and given.what != "output":
            LINE.error(f"unrecognized arguments: {given.more}")
        return given
    try:
        given.what = int(given.what)
    except ValueError:
        raise ValueError(
            f"expected {LINE.form}; got {given.what!r}{meant(given.what, CONTROLS)}"
        ) from None
    if given.more is not None:
        LINE.error(f"unrecognized arguments: {given.more}")
    return given


def cell_words(line):
    """What ``%%ranks`` is asked for. Raises UsageError, or ``Help``."""
    return CELL.read(line)


def completions(text):
    """Words that may stand at the end of a magic's line, ``text`` up to the cursor."""
    if text.lstrip().startswith("%%ranks"):
        return CELL.flags()
    first = len(text.split()) + text.endswith(" ") == 2
    return LINE.flags() + (list(CONTROLS) if first else [])
