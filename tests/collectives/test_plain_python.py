"""The algorithms need nothing but Python: they run in a browser too."""

import subprocess
import sys


def test_importing_brings_nothing_from_outside_the_standard_library():
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import teachdist.collectives\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'teachdist'}))\n"
        "print(sorted(name for name in sys.modules if name.startswith('teachdist.') and not "
        "name.startswith('teachdist.collectives')))\n"
        "print({'socket', 'threading', 'multiprocessing', 'subprocess'} & new)"
    )
    answer = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stdout.split("\n")[:3] == ["[]", "['teachdist.words']", "set()"]
