"""``breakpoint("p x", "up", "p y")``: pdb on a rank, with its commands given in advance.

A rank has no keyboard: a debugger that asks would wait for ever, and with it all the other ranks.
So the commands come as arguments; without any it shows where it is and the local names. Then the
rank goes on, unless a command is ``q``: that ends the cell, and the others are released.
"""

import io
import linecache
import pdb
import sys

from teachdist.notebook.engines.shell import users_names

DEFAULT = ("names",)


class ScriptedPdb(pdb.Pdb):
    """A pdb that reads its commands from a list, says each one, and then continues."""

    def __init__(self, commands):
        script = "\n".join([*commands, "c", ""])
        super().__init__(stdin=io.StringIO(script), stdout=sys.stdout, nosigint=True, readrc=False)
        self.use_rawinput = False
        self.prompt = ""

    def print_stack_entry(self, frame_lineno, prompt_prefix=""):
        """A line of the stack, without the file: for a cell, that is a temporary name."""
        frame, number = frame_lineno
        code = linecache.getline(frame.f_code.co_filename, number).strip()
        self.message(f"> line {number} of {frame.f_code.co_name}: {code}")

    def do_names(self, _):
        """``names``: the local names, and at the top of a cell those that cells have defined."""
        from IPython import get_ipython

        self.message(repr(users_names(get_ipython(), self.curframe.f_locals)))

    def precmd(self, line):
        """Say the command, as if it had been typed."""
        if line.strip() not in ("c", ""):
            self.message(f"(Pdb) {line.strip()}")
        return super().precmd(line)


def scripted_breakpoint(*commands):
    """What ``breakpoint()`` does on a rank."""
    ScriptedPdb(commands or DEFAULT).set_trace(sys._getframe(1))
