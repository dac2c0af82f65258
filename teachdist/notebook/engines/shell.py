"""The IPython of a rank, which has no screen of its own: what it does otherwise than a kernel's."""

import importlib
import os
import sys
import types


def install(shell):
    """Fit ``shell`` to a rank."""
    _name_cells_alike(shell)
    shell.set_hook("show_in_pager", _print, 0)
    sys.modules["tqdm.autonotebook"] = _bars_of_text()


def _name_cells_alike(shell):
    """Give a cell's file a name without the process, so that equal warnings are equal texts."""
    named = shell.compile.get_code_name

    def get_code_name(*args):
        return named(*args).replace(f"ipykernel_{os.getpid()}", "ipykernel_rank")

    shell.compile.get_code_name = get_code_name


def _bars_of_text():
    """For ``tqdm.auto``, instead of its module that chooses a widget in every kernel.

    A widget of a rank would stand still; a bar of text moves.
    """
    module = types.ModuleType("tqdm.autonotebook")
    module.__getattr__ = lambda name: getattr(importlib.import_module("tqdm.std"), name)
    return module


def _print(_shell, data, **_):
    """Show help (``dist.all_reduce?``) under the cell: a rank has no pager."""
    print(data.get("text/plain", "") if isinstance(data, dict) else data)  # noqa: T201


def users_names(shell, names):
    """Those of ``names``, a dict, that cells have defined: not IPython's, not ours, no modules."""
    hidden = shell.user_ns_hidden if shell is not None else {}
    return {
        name: value
        for name, value in names.items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and not (name in hidden and hidden[name] is value)
    }


def described(value):
    """A value in a few words: itself if it is short, else its type and what is known of its size.

    A tensor is its type, shape and, if it has few elements, these.
    """
    kind = type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        kind = f"{kind} {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        short = value.numel() <= _FEW if hasattr(value, "numel") else value.size <= _FEW
        return f"{kind} {value.tolist()}" if short else kind
    if isinstance(value, (types.FunctionType, type)):
        return kind if kind != "type" else "class"
    text = repr(value) if _is_small(value) else ""
    if text and len(text) <= _SHORT and "\n" not in text:
        return f"{kind} {text}" if kind != "str" else text
    return f"{kind} of {len(value)}" if hasattr(value, "__len__") else kind


_FEW = 8  # elements
_SHORT = 60  # characters


def _is_small(value):
    """Whether it can be put in words without much work."""
    return not hasattr(value, "__len__") or len(value) <= _SHORT
