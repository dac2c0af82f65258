"""`teachdist lint FILE...`: mistakes that can be seen in the text of a program, before it runs.

    train.py:31:9: TD001 all_reduce is called by some ranks only: under a condition on the rank

Most hangs begin with a collective that some ranks do not call. Where the condition is written in
the program (`if rank == 0:`), no run is needed to see it. Each check looks for one such pattern and
stays silent where it can't be sure: with a group of some ranks, with a call in the other branch, in
a condition that is no comparison of the rank.

    TD001  a collective under a condition on the rank, and not in the other branch
    TD002  some ranks leave a function or a loop in which a collective follows
    TD003  [t] * n as a list of outputs: all its places are one tensor
    TD004  new_group under a condition on the rank: all ranks of the job must call it
    TD005  the handle of an asynchronous call is dropped: nobody can wait for it
    TD006  src= or dst= is no rank of the group, whose ranks are written in the file
    TD007  splits of all_to_all_single that are the same on all ranks and not equal
    TD008  NCCL without torch.cuda.set_device or device_id=: all ranks would use one GPU

Output is that of ruff, so editors understand it; `# noqa` or `# noqa: TD001` at the end of a line
silences it. Notebooks are read cell by cell. What can't be seen: conditions hidden in variables
(`is_main`), in data, or in other files.
"""

import argparse
import ast
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

COLLECTIVES = {
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor",
    "all_gather_single", "all_gather_object", "gather", "gather_object", "scatter",
    "scatter_object_list", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single",
    "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "broadcast_object_list",
    "all_reduce_coalesced",
}  # fmt: skip
_GROUP_AT = {  # the place of `group` among the arguments
    "all_reduce": 2, "broadcast": 2, "reduce": 3, "all_gather": 2, "all_gather_into_tensor": 2,
    "all_gather_object": 2, "gather": 3, "gather_object": 3, "scatter": 3, "reduce_scatter": 3,
    "reduce_scatter_tensor": 3, "all_to_all": 2, "all_to_all_single": 4, "barrier": 0,
    "monitored_barrier": 0, "broadcast_object_list": 2, "scatter_object_list": 3,
}  # fmt: skip
_LISTS = {"all_gather", "gather", "all_to_all"}
_MODULES = {"dist", "torch.distributed", "distributed"}
_RANK = re.compile(r"\b(rank|global_rank|local_rank|my_rank|world_rank)\b|get_rank\(|\bRANK\b")
_NOQA = re.compile(r"#\s*noqa(?::\s*(?P<codes>[A-Z0-9, ]+))?", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class Finding:
    """One line that is wrong, and why."""

    file: str
    line: int
    column: int
    code: str
    text: str

    def __str__(self):
        return f"{self.file}:{self.line}:{self.column}: {self.code} {self.text}"


def lint(source, file="<text>"):
    """The `Finding`s of a program's text, in order.

    Raises SyntaxError if it is none.
    """
    tree = ast.parse(source, file)
    checks = _Checks(file)
    checks.visit(tree)
    checks.whole(tree, source)
    lines = source.splitlines()
    return sorted(found for found in set(checks.found) if not _silenced(found, lines))


def _silenced(found, lines):
    said = _NOQA.search(lines[found.line - 1]) if found.line <= len(lines) else None
    return said is not None and (said["codes"] is None or found.code in said["codes"])


def _called(node):
    """The name of a function of torch.distributed that a call calls, or ""."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    module = ast.unparse(node.func.value)
    return node.func.attr if module in _MODULES else ""


def _group_of(call):
    """The group argument of a call as an expression; None for the default group."""
    place = _GROUP_AT.get(_called(call))
    if place is not None and len(call.args) > place:
        return call.args[place]
    for keyword in call.keywords:
        if keyword.arg == "group" and not (
            isinstance(keyword.value, ast.Constant) and keyword.value.value is None
        ):
            return keyword.value
    return None


def _collectives(nodes):
    """Calls of collectives on the default group in statements, but not in functions in them."""
    todo = list(nodes)
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if _called(node) in COLLECTIVES and _group_of(node) is None:
            yield node
        todo[:0] = list(ast.iter_child_nodes(node))


def _on_rank(test):
    """Whether a condition compares the rank with something that is no size."""
    return any(
        isinstance(part, ast.Compare) and _RANK.search(ast.unparse(part)) for part in ast.walk(test)
    ) or (isinstance(test, ast.UnaryOp | ast.Name) and bool(_RANK.search(ast.unparse(test))))


class _Checks(ast.NodeVisitor):
    def __init__(self, file):
        self.file, self.found = file, []
        self._scope = None  # the function that is looked at
        self._parted = {}  # (function, collective) -> [(condition, call)] that only some ranks make

    def say(self, node, code, text):
        self.found.append(Finding(self.file, node.lineno, node.col_offset + 1, code, text))

    # -- ranks that part ------------------------------------------------------------------------

    def visit_If(self, node):
        if _on_rank(node.test):
            self._branches(node)
        self.generic_visit(node)

    def _branches(self, node):
        sides = list(_collectives(node.body)), list(_collectives(node.orelse))
        names = [sorted(_called(call) for call in side) for side in sides]
        if names[0] != names[1]:
            for side, others in zip(sides, names[::-1], strict=True):
                for call in side:
                    if _called(call) not in others:
                        key = self._scope, _called(call)
                        self._parted.setdefault(key, []).append((node, call))
        for part in ast.walk(node):
            local = isinstance(part, ast.Call) and any(
                keyword.arg == "use_local_synchronization" for keyword in part.keywords
            )
            if _called(part) == "new_group" and not local:
                text = "new_group is called by some ranks only; all ranks of the job must call it"
                self.say(part, "TD004", text)

    def _some_ranks_only(self):
        """TD001, but where the same collective stands under several conditions of a function.

        `if rank != 0: barrier()`, then work, then `if rank == 0: barrier()` is how one rank goes
        first, and right.
        """
        for (_, name), places in self._parted.items():
            if len({id(condition) for condition, _ in places}) == 1:
                for _, call in places:
                    text = "is called by some ranks only: under a condition on the rank"
                    self.say(call, "TD001", f"{name} {text}")

    def _blocks(self, node):
        """Early ends: what follows an `if` on the rank that leaves this block of statements."""
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if not isinstance(statements, list):
                continue
            for place, statement in enumerate(statements):
                if isinstance(statement, ast.If) and _on_rank(statement.test):
                    self._left(statement, statements[place + 1 :])

    def _left(self, statement, following):
        last = statement.body[-1]
        if statement.orelse or not isinstance(last, ast.Return | ast.Break | ast.Continue):
            return
        inside = [_called(call) for call in _collectives(statement.body)]
        for call in _collectives(following):
            if _called(call) not in inside:
                text = f"some ranks leave here, and {_called(call)} follows in line {call.lineno}"
                self.say(last, "TD002", text)
                return

    def generic_visit(self, node):
        self._blocks(node)
        super().generic_visit(node)

    # -- single calls ---------------------------------------------------------------------------

    def visit_Expr(self, node):
        name = _called(node.value)
        if name in COLLECTIVES | {"isend", "irecv"}:
            given = {k.arg: k.value for k in node.value.keywords}
            later = given.get("async_op")
            if name in ("isend", "irecv") or (
                isinstance(later, ast.Constant) and later.value is True
            ):
                self.say(node.value, "TD005", f"the handle of {name} is dropped: nobody can wait")
        self.generic_visit(node)

    def visit_FunctionDef(self, node):
        outer, self._scope = self._scope, node
        self._one_tensor(node)
        self.generic_visit(node)
        self._scope = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Module(self, node):
        self._one_tensor(node)
        self.generic_visit(node)

    def _one_tensor(self, scope):
        made = {}
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and _repeated(node.value):
                made |= {t.id: node.value for t in node.targets if isinstance(t, ast.Name)}
        for node in ast.walk(scope):
            if _called(node) in _LISTS and node.args:
                first = node.args[0]
                first = made.get(first.id) if isinstance(first, ast.Name) else first
                if first is not None and _repeated(first):
                    text = f"{ast.unparse(first)} is one tensor in all places; make one a rank"
                    self.say(node.args[0], "TD003", text)

    def visit_Call(self, node):
        if _called(node) == "all_to_all_single":
            given = list(node.args[2:4]) + [k.value for k in node.keywords if "split" in str(k.arg)]
            for splits in given:
                numbers = _numbers(splits)
                if numbers and len(set(numbers)) > 1:
                    text = f"splits {numbers} are the same on all ranks, and not equal: what one"
                    self.say(splits, "TD007", f"{text} sends is not what another expects")
        self.generic_visit(node)

    # -- the whole file -------------------------------------------------------------------------

    def whole(self, tree, source):
        """What needs more than one place."""
        self._some_ranks_only()
        groups = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and _called(node.value) == "new_group":
                ranks = _numbers(node.value.args[0]) if node.value.args else None
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        groups[target.id] = None if target.id in groups else ranks
        for node in ast.walk(tree):
            group = _group_of(node) if _called(node) else None
            ranks = groups.get(group.id) if isinstance(group, ast.Name) else None
            for keyword in node.keywords if ranks else ():
                root = _number(keyword.value)
                if keyword.arg in ("src", "dst") and root is not None and root not in ranks:
                    text = (
                        f"{keyword.arg}={root} is no rank of the group {ranks}: it counts those of "
                        f"the job; write {keyword.arg}={ranks[0]} or group_{keyword.arg}=0"
                    )
                    self.say(keyword.value, "TD006", text)
            if _called(node) == "init_process_group" and _without_device(node, source):
                text = "NCCL without torch.cuda.set_device or device_id=: all ranks use GPU 0"
                self.say(node, "TD008", text)


def _without_device(call, source):
    named = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "backend")]
    nccl = any(isinstance(n, ast.Constant) and n.value == "nccl" for n in named)
    chosen = re.search(r"set_device|device_id|set_device_index|cuda:\{|CUDA_VISIBLE", source)
    default = re.search(r"\.cuda\(\)|[\"']cuda[\"']", source)
    return nccl and chosen is None and default is not None


def _repeated(node):
    """Whether an expression is [something] * n, with something that is made once."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    inside = node.left if isinstance(node.left, ast.List) else node.right
    return (
        isinstance(inside, ast.List)
        and len(inside.elts) == 1
        and not isinstance(inside.elts[0], ast.Constant)
    )


def _numbers(node):
    """The numbers of a list that is written out, or None."""
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    numbers = [_number(element) for element in node.elts]
    return None if None in numbers else numbers


def _number(node):
    is_number = isinstance(node, ast.Constant) and type(node.value) is int
    return node.value if is_number else None


def cells(text):
    """The code of a notebook's cells, with magics blanked, as (number, source)."""
    for number, cell in enumerate(json.loads(text)["cells"], 1):
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            kept = ["" if line.lstrip().startswith(("%", "!")) else line for line in lines]
            yield number, "\n".join(kept)


def main(arguments):
    """Run the command: 0 if nothing was found, 1 if something was, 2 if a file can't be read."""
    parser = argparse.ArgumentParser(
        prog="teachdist lint",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar="FILE", help="programs, notebooks, folders")
    found, unread = [], 0
    for path in _files(parser.parse_args(arguments).paths):
        try:
            text = path.read_text("utf-8")
            parts = cells(text) if path.suffix == ".ipynb" else [("", text)]
            for number, source in parts:
                found += lint(source, f"{path}:cell {number}" if number else str(path))
        except (OSError, UnicodeDecodeError, SyntaxError, ValueError, KeyError) as error:
            print(f"teachdist lint: {path}: {error}", file=sys.stderr)
            unread += 1
    for one in found:
        print(one)
    print(f"Found {len(found)} error{'s' * (len(found) != 1)}." if found else "All checks passed!")
    return 2 if unread else int(bool(found))


def _files(arguments):
    for argument in map(Path, arguments):
        if argument.is_dir():
            yield from sorted(p for p in argument.rglob("*") if p.suffix in (".py", ".ipynb"))
        else:
            yield argument
