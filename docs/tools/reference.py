"""The reference: every public name of the package, by the module that it comes from."""

import inspect

import teachdist
import teachdist.collectives

GROUPS = {
    "collectives": ("Algorithms", "Write, prove, price and choose algorithms. No torch needed."),
    "pictures": ("Pictures", "Curves of predicted time; no torch needed."),
    "backend": ("Backend", 'What `init_process_group("teachdist")` uses, and how to steer it.'),
    "notebook": ("Notebook", "Ranks as engines, and pictures."),
    "stores": ("Stores", "Key-value stores with torch's constructors and methods."),
    "mesh": ("DeviceMesh", "A readable DeviceMesh with torch's signatures."),
    "join": ("Join", "Uneven inputs, with torch's signatures."),
    "rehearse": ("Rehearsing", "An unchanged program on virtual ranks of one process."),
    "tracing": ("Traces", "Recording what real calls did."),
    "diagnose": ("Diagnosis", "Who is where, and who is to blame."),
}


def pages() -> dict[str, str]:
    """A page for each part of the package, and one that lists all names."""
    found = {}
    lines = ["# API reference\n", "`import teachdist` loads a name when it is first asked for.\n"]
    for part, (title, about) in GROUPS.items():
        names = public(part)
        if not names:
            continue
        found[f"api/{part}.md"] = f"# {title}\n\n{about}\n\n" + "\n\n".join(
            f"::: {path}" for path in names.values()
        )
        lines.append(f"## {title}\n\n{about}\n")
        lines += [f"- [`{name}`]({part}.md#{path})" for name, path in names.items()]
    found["api/index.md"] = "\n".join(lines) + "\n"
    return found


def public(part: str) -> dict[str, str]:
    """The public names of teachdist.<part>: name -> where it is defined, for mkdocstrings."""
    candidates = {name: getattr(teachdist, name) for name in teachdist.__all__}
    try:
        module = __import__(f"teachdist.{part}", fromlist=["__all__"])
    except ImportError:
        return {}
    candidates |= {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    found = {}
    for name, value in sorted(candidates.items()):
        home = getattr(value, "__module__", "") or ""
        told = inspect.isclass(value) or inspect.isfunction(value)
        if told and (home == f"teachdist.{part}" or home.startswith(f"teachdist.{part}.")):
            found[name] = f"{home}.{value.__qualname__}"
    return found
