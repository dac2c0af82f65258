"""Fold docs/where/*.toml into docs/documented.toml: `python docs/tools/place.py`.

Several people can name places at the same time, each in a file of their own; this writes them into
the key `where` of the items and removes the files. The rest of documented.toml stays as it is.
"""

import json
import re
import sys

import documented


def fold(text: str, places: dict[str, list[str]]) -> str:
    """`text` of documented.toml with each item's `where` set to its places."""

    def placed(block: str) -> str:
        name = re.search(r'^id = "([^"]+)"', block, flags=re.MULTILINE)
        if not name or not places.get(name[1]):
            return block
        where = places[name[1]]
        value = json.dumps(where[0] if len(where) == 1 else where, ensure_ascii=False)
        block = re.sub(r"^where = .*\n", "", block, flags=re.MULTILINE)
        return block.rstrip("\n") + f"\nwhere = {value}\n\n"

    head, *blocks = re.split(r"(?=^\[\[item\]\]$)|(?=^\[\[note\]\]$)", text, flags=re.MULTILINE)
    return head + "".join(placed(b) if b.startswith("[[item]]") else b for b in blocks)


def main() -> None:
    """Fold all files in and remove them; stops at an id that isn't listed."""
    known = {item["id"]: item["where"] for item in documented.items()}
    if unknown := sorted(set(documented.pending()) - set(known)):
        sys.exit(f"docs/where names ids that documented.toml doesn't have: {', '.join(unknown)}")
    text = documented.DOCUMENTED.read_text("utf-8")
    documented.DOCUMENTED.write_text(fold(text, known).rstrip("\n") + "\n", "utf-8")
    for file in (documented.ROOT / "docs" / "where").glob("*.toml"):
        file.unlink()


if __name__ == "__main__":
    main()
