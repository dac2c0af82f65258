"""The IPython of a rank, which has no screen of its own: what it does otherwise than a kernel's."""

import importlib
import math
import os
import sys
import types

FEW = 8  # elements of a tensor
SHORT = 60  # characters


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
    if kind in ("Tensor", "Parameter", "ndarray"):
        kind = f"{kind} {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    try:
        return f"{kind} {_in_words(value)}".rstrip()
    except Exception:  # noqa: BLE001  the value's own methods: any may refuse
        return kind


def _in_words(value):
    """What a value says of itself, in a line; "" if that would be long."""
    if isinstance(value, (types.FunctionType, type)):
        return ""
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        plain = type(value).__name__ in ("Tensor", "Parameter", "ndarray")
        return value.tolist() if plain and math.prod(value.shape) <= FEW else ""
    if hasattr(value, "__len__") and len(value) > SHORT:
        return f"of {len(value)}"
    text = repr(value)
    if len(text) <= SHORT and "\n" not in text:
        return text
    return f"of {len(value)}" if hasattr(value, "__len__") else ""
