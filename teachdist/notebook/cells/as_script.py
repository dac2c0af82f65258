"""``%%ranks --as-script``: the cells so far as a program for torchrun.

What a notebook does cell by cell, a job does in one file. The program has what ``%ranks`` did
(join the process group), the cells that ran on the ranks, and what the notebook's display did
(show the last expression of a cell). Cells that ran on some ranks only become an ``if``.
"""

import ast
import textwrap

_HEAD = '''"""Run with: torchrun --nproc-per-node {n} {name}"""

import torch
import torch.distributed as dist

dist.init_process_group("{backend}")
rank, world_size = dist.get_rank(), dist.get_world_size()


def show(value):
    if value is not None:
        print(f"[rank {{rank}}]", value)
'''
_TAIL = "dist.destroy_process_group()\n"


def as_script(cells, n, backend, name="script.py"):
    """A program's text.

    Args:
        cells: list of (text, ranks or None for all).
        n: how many ranks they ran on.
        backend: the process group's.
        name: the file's name, for its first line.
    """
    head = _HEAD.format(n=n, name=name, backend=backend)
    body = [_cell(text, ranks) for text, ranks in cells]
    return head + "\n\n" + "\n\n".join([*body, _TAIL])


def _cell(text, ranks):
    text = _printing(_without_magics(text).strip("\n"))
    if ranks is not None:
        text = f"if rank in {tuple(ranks)}:\n{textwrap.indent(text, '    ')}"
    return text


def _without_magics(text):
    """The text with magics, shell commands and help (``f?``) as comments; IPython finds them."""
    lines = text.splitlines(keepends=True)
    while (first := _first_magic(lines)) is not None:
        bare = lines[first].lstrip()
        indent = lines[first][: -len(bare)]
        stand_in = f"{indent}pass  " if indent else ""  # a block must not become empty
        lines[first] = f"{stand_in}# only in a notebook: {bare}"
    return "".join(lines)


def _first_magic(lines):
    from IPython.core import inputtransformer2 as transformers

    if lines and lines[0].startswith("%%"):
        return 0
    tokens = transformers.make_tokens_by_line(lines)
    kinds = (
        transformers.MagicAssign,
        transformers.SystemAssign,
        transformers.EscapedCommand,
        transformers.HelpEnd,
    )
    found = [kind.find(tokens) for kind in kinds]
    return min((one.start_line for one in found if one is not None), default=None)


def _printing(text):
    """The last expression is shown, as the notebook did."""
    try:
        last = ast.parse(text).body[-1:]
    except SyntaxError:
        return text
    if not last or not isinstance(last[0], ast.Expr) or text.rstrip().endswith(";"):
        return text
    lines = text.splitlines()
    start, column = last[0].lineno - 1, last[0].col_offset
    before = lines[start].encode()[:column].decode()
    lines[start] = lines[start].encode()[column:].decode()
    shown = "\n".join(lines[start : last[0].end_lineno])
    return "\n".join([*lines[:start], f"{before}show({shown})", *lines[last[0].end_lineno :]])
