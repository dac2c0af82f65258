"""The command line: `teachdist demo`, `teachdist lab`, and so on; `teachdist --help` lists them.

Each command is a function of its parsed arguments and a function that declares them; what a
command does lives in the module that it imports, so that `teachdist --help` is instant.
"""

import argparse
import importlib.metadata
import inspect
import runpy
import shutil
import subprocess
import sys
import traceback
from pathlib import Path


def main(argv=None):
    """Run a command; the exit status: 0, 1 for a failure that was said, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="teachdist", description="Learn, see and debug torch.distributed."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (run, declare, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        declare(command)
        command.set_defaults(run=run)
    given = list(sys.argv[1:] if argv is None else argv)
    if given and given[0] in COMMANDS and hasattr(COMMANDS[given[0]][0], "delegates"):
        name, *more = given
        arguments = argparse.Namespace(command=name, run=COMMANDS[name][0], more=more)
    else:
        arguments = parser.parse_args(given)
    try:
        return int(arguments.run(arguments) or 0)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not said_by_us(error):
            raise
        print(f"teachdist {arguments.command}: {error}", file=sys.stderr)
        return 1


def said_by_us(error):
    """Whether an error is an answer to the user, not a fault of ours that needs its traceback."""
    ours = type(error).__module__.startswith("teachdist")
    return ours or isinstance(error, (ValueError, OSError, ImportError))


# -- the commands ------------------------------------------------------------------------------


def demo(arguments):
    """Run the main job."""
    from teachdist.demo import main as run

    return run(ranks=arguments.ranks)


def demo_arguments(command):
    """How many ranks."""
    command.add_argument("--ranks", type=int, default=4, help="how many, 2 to 16 (4)")


def nothing(command):
    """A command without arguments."""


def lab(arguments):
    """Open JupyterLab."""
    folder = Path(arguments.folder) if arguments.folder else course_folder()
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; `teachdist course` makes one")
    return subprocess.call([sys.executable, "-m", "jupyterlab", str(folder), *arguments.more])


def lab_arguments(command):
    """Where to open it, and what else JupyterLab should be told."""
    command.add_argument("folder", nargs="?", help="the folder to open (default: the course)")
    command.add_argument("more", nargs=argparse.REMAINDER, help="arguments for JupyterLab")


def prove(arguments):
    """Prove an algorithm, or refute it."""
    from teachdist.collectives import Algorithm
    from teachdist.collectives import prove as check

    algorithm = arguments.algorithm
    if ".py:" in algorithm:
        algorithm = defined_in(*algorithm.rsplit(":", 1))
    elif algorithm.endswith(".py"):
        raise ValueError(f"{algorithm}: name the function too, {algorithm}:FUNCTION")
    if not 1 <= arguments.least <= arguments.ranks:
        raise ValueError(
            f"--ranks {arguments.ranks}: needs at least 1 rank, and no fewer than --least "
            f"{arguments.least}"
        )
    sizes = range(arguments.least, arguments.ranks + 1)
    if arguments.op is None and callable(algorithm) and not isinstance(algorithm, Algorithm):
        raise ValueError("say which collective it is meant to be, as in --op all_reduce")
    chunks = chunks_of(arguments.chunks)
    try:
        result = check(algorithm, op=arguments.op, ranks=sizes, chunks=chunks)
    except TypeError as error:  # what it says of the generator is enough
        raise ValueError(str(error)) from None
    print(result)
    return 0 if result else 1


def defined_in(path, name):
    """What the file defines under that name; a fault of the file is said with its line."""
    try:
        defined = runpy.run_path(path)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except Exception as error:  # noqa: BLE001  the file may raise anything
        lines = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == path]
        place = f"{path}:{lines[-1].lineno}" if lines else path
        raise ValueError(f"{place} raises {type(error).__name__}: {error}") from None
    if name not in defined:
        functions = [key for key, value in defined.items() if inspect.isgeneratorfunction(value)]
        raise ValueError(
            f"{path} defines no {name}; its generators are: {', '.join(functions) or 'none'}"
        )
    return defined[name]


def chunks_of(text):
    """The number of chunks that --chunks asks for: None, a number, or one per rank."""
    if text is None:
        return None
    if text == "ranks":
        return lambda size: size
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ValueError(f"--chunks {text}: expected a number, at least 1, or the word ranks")


def prove_arguments(command):
    """Which algorithm, for which collective, for how many ranks."""
    command.add_argument("algorithm", help="a name of the catalogue, or FILE.py:FUNCTION")
    command.add_argument("--op", help="the collective (when the name alone does not tell)")
    command.add_argument(
        "--chunks", help="how many chunks a function of yours uses: a number, or `ranks` (1)"
    )
    command.add_argument("--ranks", type=int, default=16, help="largest number of ranks (16)")
    command.add_argument("--least", type=int, default=1, help="smallest number of ranks (1)")


def course(arguments):
    """Copy the notebooks of the installed version."""
    source, target = course_folder(), Path(arguments.folder)
    names = sorted(path.name for path in source.glob("*.ipynb"))
    present = [name for name in names if (target / name).exists()]
    if present and not arguments.overwrite:
        raise ValueError(
            f"{target / present[0]} is there already; name another folder, or add --overwrite to "
            "replace your copies"
        )
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(source / name, target / name)
    print(f"{len(names)} notebooks are in {target}; open them: teachdist lab {target}")


def course_arguments(command):
    """Where to, and whether copies may be replaced."""
    command.add_argument("folder", nargs="?", default="teachdist-course")
    command.add_argument("--overwrite", action="store_true", help="replace what is there")


def course_folder():
    """Where the notebooks are: beside the package in a clone, else where they were installed."""
    beside = Path(__file__).parents[1] / "notebooks"
    if beside.is_dir():
        return beside
    for file in importlib.metadata.files("teachdist") or ():
        if file.match("share/teachdist/course/*.ipynb"):
            return Path(file.locate()).resolve().parent
    raise ValueError("this installation has no notebooks")


def delegated(module):
    """A command whose module has a `main(argv)` with arguments and help texts of its own."""

    def run(arguments):
        from importlib import import_module

        return import_module(module).main(arguments.more)

    run.delegates = True
    return run, nothing


def report(arguments):
    """Sum up a class."""
    from teachdist.collectives import report as summary

    print(summary(arguments.folder))


def report_arguments(command):
    """Where the results of the class are."""
    command.add_argument("folder", help="a folder of result files, one per learner")


COMMANDS = {
    "demo": (demo, demo_arguments, "ranks compute, train a model, and compare with gloo"),
    "lab": (lab, lab_arguments, "open JupyterLab on the course"),
    "course": (course, course_arguments, "copy the course's notebooks to a folder"),
    "prove": (prove, prove_arguments, "prove an algorithm, or show the counter-example"),
    "report": (report, report_arguments, "sum up the exercises of a class"),
    "bench": (*delegated("teachdist.bench"), "compare with gloo in one run"),
    "rehearse": (*delegated("teachdist.rehearse.script"), "run a script on virtual ranks"),
    "calibrate": (*delegated("teachdist.bench.calibrate"), "measure this machine's links"),
    "doctor": (*delegated("teachdist.diagnose.doctor"), "where is every rank of a running job?"),
    "lint": (*delegated("teachdist.rules.lint"), "mistakes that the text of a program shows"),
    "explain": (
        *delegated("teachdist.tracing.explain"),
        "why was a job slow; of what did it die?",
    ),
}

if __name__ == "__main__":
    sys.exit(main())
