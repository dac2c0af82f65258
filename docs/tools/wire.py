"""The page on the stores' formats, from the table and the words of the code itself."""

import inspect
import re

from teachdist.stores.file_store import file_store
from teachdist.stores.tcp_store import wire

EXAMPLES = (
    ("VALIDATE", wire.MAGIC),
    ("SET", b"/color", b"red"),
    ("GET", b"/color"),
    ("ADD", b"/seen", 1),
    ("WAIT", [b"/a", b"/b"]),
)


def fill(text: str) -> str:
    """The page with its `<!-- stores: ... -->` comments filled in."""
    parts = {
        "idea": _prose(wire),
        "operations": _operations(),
        "examples": _examples(),
        "more": _more(),
        "file": _prose(file_store),
    }
    for name, part in parts.items():
        text = text.replace(f"<!-- stores: {name} -->", part)
    return text


def _prose(module):
    """A module's docstring without its first line, as Markdown."""
    _, _, rest = inspect.cleandoc(module.__doc__).partition("\n")
    return rest.strip().replace("``", "`")


def _operations():
    rows = [
        "| byte | operation | arguments | reply | what it says (numbers stand for arguments) |",
        "| ---: | --- | --- | --- | --- |",
    ]
    for op in wire.OPS:
        arguments = ", ".join(f"`{kind}`" for kind in op.arguments) or "–"
        reply = f"`{op.reply}`" if op.reply else "–"
        says = re.sub(r"\{(\d)\}", lambda found: f"<var>{int(found[1]) + 1}</var>", op.says)
        rows.append(f"| {op.code} | {op.name} | {arguments} | {reply} | {says} |")
    return "\n".join(rows)


def _examples():
    rows = ["| request | bytes |", "| --- | --- |"]
    for name, *arguments in EXAMPLES:
        told = ", ".join(repr(argument) for argument in arguments)
        octets = wire.request(name, *arguments).hex(" ")
        rows.append(f"| {name} {told} | `{octets}` |")
    return "\n".join(rows)


def _more():
    rows = ["| key | meaning |", "| --- | --- |"]
    rows += [
        f"| `{wire.USERS.decode()}` | how many users have connected (torch's own) |",
        f"| `{wire.INTRODUCTION.decode()}` | set by a client: its name in reports |",
        f"| `{wire.WAITING.decode()}` | asked: who waits for which keys |",
    ]
    return "\n".join(rows)
