"""The command line: `teachdist demo`, `teachdist lab`, and so on; `teachdist --help` lists them."""

import argparse
import sys


def main(argv=None):
    """Run a command; the exit status."""
    parser = argparse.ArgumentParser(prog="teachdist", description=__doc__.partition(":")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (run, text, fill) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        fill(command)
        command.set_defaults(run=run)
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments) or 0
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        if type(error).__module__ == "builtins" and not isinstance(error, (ValueError, OSError)):
            raise
        print(f"teachdist {arguments.command}: {error}", file=sys.stderr)
        return 1


def _demo(arguments):
    from teachdist.demo import main as demo

    return demo()


def _lab(arguments):
    import subprocess

    return subprocess.call([sys.executable, "-m", "jupyterlab", arguments.folder])


def _nothing(command):
    """The command takes no arguments."""


def _lab_arguments(command):
    command.add_argument("folder", nargs="?", default="notebooks", help="where to open it")


COMMANDS = {
    "demo": (_demo, "four ranks compute, train a model, and compare with gloo", _nothing),
    "lab": (_lab, "open JupyterLab on the course", _lab_arguments),
}

if __name__ == "__main__":
    sys.exit(main())
