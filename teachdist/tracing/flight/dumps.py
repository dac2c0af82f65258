"""Reading dumps of torch's flight recorder, one file for each rank, as plain data.

A pickle is a program: whoever loads one runs it. These files come from jobs, disks and mails of
others, so the reader makes numbers, texts, lists and dicts, and refuses whatever asks for a class.

The format is torch's `FlightRecorder`, version 2.x, as its `dump` writes it: entries with
profiling_name ("nccl:all_reduce", "nccl:recv 0<-1"), process_group (name, description),
collective_seq_id, sizes, dtypes, state, retired, frames (innermost first); pg_config with the
ranks of each group. The rank is the number at the end of the file's name.
"""

import io
import json
import pickle
import re
from dataclasses import dataclass
from pathlib import Path

_RANK = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl))?$")
_MOST = 1 << 30  # bytes of a file


class DumpError(ValueError):
    """A file that is no dump, or a folder without any."""


@dataclass(frozen=True)
class Call:
    """One recorded call of a rank.

    number: of the collective in its group, of messages in theirs, from 1. words: as messages say
    it. title: the description of the group. over: whether it is known to have ended. peers: (from,
    to) of a message, by their places in the group.
    """

    op: str
    group: str
    number: int
    words: str
    site: str
    over: bool
    title: str = ""
    sizes: tuple = ()
    dtype: str = ""
    peers: tuple = ()

    def __str__(self):
        return f"{self.words} at {self.site}" if self.site else self.words


@dataclass(frozen=True)
class Dump:
    """What one rank has left. groups: {name: ranks}, as far as told; calls in their order."""

    rank: int
    calls: tuple
    groups: dict


def load(path):
    """{rank: `Dump`} of a folder with a file for each rank.

    Raises DumpError with the file for what is no dump.
    """
    files = sorted(file for file in Path(path).iterdir() if file.is_file())
    found = {}
    for file in files:
        number = _RANK.search(file.name)
        if number is None:
            continue
        dump = _dump(int(number[1]), _read(file), file)
        if dump.rank in found:
            raise DumpError(f"{file}: there is another dump of rank {dump.rank}")
        found[dump.rank] = dump
    if not found:
        raise DumpError(f"{path}: no dumps here, which would be files whose names end with a rank")
    return found


def is_dump(path):
    """Whether a folder looks like one with dumps, rather than with traces of this package."""
    for file in sorted(Path(path).iterdir()):
        if file.is_file() and _RANK.search(file.name):
            data = file.read_bytes()
            return data[:1] == b"\x80" or b'"pg_config"' in data
    return False


class _Plain(pickle.Unpickler):
    """An unpickler that makes no objects."""

    def find_class(self, module, name):
        raise DumpError(f"it asks for {module}.{name}, which a dump does not need")

    def persistent_load(self, pid):
        raise DumpError(f"it asks for {pid!r} from outside")


def _read(file):
    if file.stat().st_size > _MOST:
        raise DumpError(f"{file}: {file.stat().st_size} bytes are too many for a dump")
    data = file.read_bytes()
    try:
        told = _Plain(io.BytesIO(data)).load() if data[:1] == b"\x80" else json.loads(data)
        if str(told["version"]).partition(".")[0] != "2":
            raise DumpError(f"version {told['version']} of the format; 2.x is known")
        return told
    except DumpError as error:
        raise DumpError(f"{file}: {error}") from None
    except Exception as error:
        raise DumpError(f"{file}: is no dump of a flight recorder: {error}") from error


def _dump(rank, told, file):
    try:
        groups = {}
        for key, group in told["pg_config"].items():
            ranks = group.get("ranks", "[]")
            ranks = json.loads(ranks) if isinstance(ranks, str) and ranks else list(ranks)
            name = str(group.get("name") or key)
            if name:  # gloo names none, so that the last group stands for all
                groups[name] = tuple(ranks)
        calls = tuple(_call(entry) for entry in told["entries"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DumpError(f"{file}: is no dump of a flight recorder: {error!r}") from error
    return Dump(rank, calls, groups)


def _call(entry):
    name = entry["profiling_name"].partition(":")[2] or entry["profiling_name"]
    op, _, meta = name.partition(" ")
    peers = ()
    if "->" in meta:
        source, to = meta.split("->")
        peers = int(source), int(to)
    elif "<-" in meta:
        to, source = meta.split("<-")
        peers = int(source), int(to)
    sizes = tuple(tuple(size) for size in entry.get("input_sizes") or ())
    dtype = (entry.get("input_dtypes") or [""])[0].lower().replace("float", "float32", 1)
    inside = f"{dtype}{list(sizes[0])}" if sizes else ""
    if peers:
        inside = f"{inside}, {meta}".lstrip(", ")
    number = entry["p2p_seq_id"] if entry.get("is_p2p") else entry["collective_seq_id"]
    over = bool(entry.get("retired")) or entry.get("state") == "completed"
    group, title = map(str, entry["process_group"])
    said, told = f"{op}({inside})", (title, sizes, dtype, peers)
    return Call(op.strip("_"), group, int(number), said, _site(entry), over, *told)


def _site(entry):
    """The innermost line that is the user's; "" if no frames were recorded."""
    for frame in entry.get("frames") or ():
        file = str(frame["filename"])
        if "/torch/" not in file and not file.startswith("<") and "/runpy" not in file:
            return f"{file.rpartition('/')[2]}:{frame['line']}"
    return ""
