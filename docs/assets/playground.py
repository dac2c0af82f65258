"""The playground's Python side: the learner's code in, plain data out.

Runs in the browser's Python (pyodide) and anywhere else: it needs teachdist.collectives and
teachdist.pictures, no torch.
"""

import contextlib
import inspect
import io
import json
import traceback
from dataclasses import replace

from teachdist.collectives import (
    DEFINITIONS,
    CounterExample,
    Recv,
    Reduce,
    Send,
    cost,
    exercise,
    exercises,
    get,
    prove,
)
from teachdist.collectives import catalog as catalogue
from teachdist.collectives.catalog import add, make, remove
from teachdist.pictures import plot_cost, scene

SIZES = range(1, 17)
PRICED = [4**k for k in range(2, 14)]  # bytes
FREE = """def ring(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, (rank - 1 - step) % size), Reduce(left, (rank - 2 - step) % size)
    for step in range(size - 1):
        yield Send(right, (rank - step) % size), Recv(left, (rank - 1 - step) % size)
"""


class NotUsableError(Exception):
    """The code can't be used; the text says why, for the learner."""


def tasks() -> list[dict]:
    """Free play and all exercises, with what to begin with."""
    free = {
        "name": "",
        "op": "all_reduce",
        "task": "Write any collective. This is the ring; break it and see what the checker says.",
        "starter": FREE,
        "hint": "",
        "chunks": "size",
    }
    found = [free]
    for name in exercises():
        one = exercise(name)
        found.append(
            {
                "name": name,
                "op": one.op,
                "task": one.task,
                "starter": one.starter,
                "hint": one.hint,
                "chunks": "",
            }
        )
    return found


def collectives() -> dict[str, str]:
    """What each collective means, by its name."""
    return {op: definition.meaning for op, definition in DEFINITIONS.items()}


def check(code: str, task: str, op: str, chunks: str) -> dict:
    """Prove the code, or find what goes wrong; for an exercise also whether it is good enough."""
    generator, printed = load(code)
    made = _made(generator, task, op, chunks)
    verdict = exercise(task).check(generator) if task else prove(made, ranks=SIZES)
    found = verdict.proof if task else verdict
    answer = {"good": bool(verdict), "text": printed + str(verdict), "scene": None}
    if isinstance(found, CounterExample):
        answer["scene"] = scene(made, ranks=found.size, root=found.root, hosts=found.hosts)
    return answer


def step(code: str, task: str, op: str, chunks: str, ranks: int) -> dict:
    """The rounds among `ranks` ranks, for the player."""
    generator, printed = load(code)
    found = scene(_made(generator, task, op, chunks), ranks=ranks, hosts=None)
    return {"good": found["fault"] is None, "text": printed, "scene": found}


def price(code: str, task: str, op: str, chunks: str, ranks: int) -> dict:
    """Predicted time beside the catalogue's, as text and as a picture; only of what is proven."""
    made = _made(load(code)[0], task, op, chunks)
    proof = prove(made, ranks=ranks)
    if not proof:
        return check(code, task, op, chunks)
    mine = add(replace(made, name=f"your {made.name}"))
    try:
        names = [n for n in catalogue()[made.op] if get(made.op, n).serves(ranks)]
        svg = plot_cost(made.op, nbytes=PRICED, ranks=ranks, algorithms=names)
        text = str(cost(mine, nbytes=1 << 20, ranks=ranks))
    finally:
        remove(made.op, mine.name)
    return {"good": True, "text": text, "scene": None, "svg": svg}


def load(code: str):
    """(the last generator function that the code defines, what it printed)."""
    space = {"Send": Send, "Recv": Recv, "Reduce": Reduce, "__name__": "playground"}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "your code", "exec"), space)
    except Exception as error:  # noqa: BLE001 - it is the learner's, and becomes an answer
        raise NotUsableError(_where(error)) from None
    functions = [f for f in space.values() if inspect.isfunction(f)]
    generators = [f for f in functions if inspect.isgeneratorfunction(f)]
    if not functions:
        raise NotUsableError("define a generator function of (rank, size)")
    return (generators or functions)[-1], printed.getvalue()


def pieces(text: str):
    """The number of chunks from what was typed: a number, or an expression of `size`."""
    if not text.strip():
        return None
    try:
        compiled = compile(text, "chunks", "eval")
        eval(compiled, {"size": 4})
    except Exception as error:  # noqa: BLE001
        raise NotUsableError(f"chunks: {error}") from None
    return lambda size: eval(compiled, {"size": size})


def answer(call: str, arguments: str) -> str:
    """Call a function of this file by its name; JSON in, JSON out. What goes wrong is an answer."""
    try:
        result = globals()[call](*json.loads(arguments))
    except (NotUsableError, ValueError, TypeError) as error:
        result = {"good": False, "text": str(error), "scene": None}
    return json.dumps(result)


def _made(generator, task, op, chunks):
    if task:
        given = exercise(task).definition
        return make(given.op, generator, None, given.chunks, given.when)
    fixed = DEFINITIONS[op].fixed_count is not None
    return make(op, generator, None, None if fixed else pieces(chunks))


def _where(error):
    """The error as the learner needs it: what, and in which line of the code."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == "your code"]
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {error}"
