"""A test's body, and what each rank is given of the values of its fixtures.

Fixtures run once, as in every test, before there are ranks. Then each rank gets a copy of what they
gave, as a process would: a model that a rank trains is its own. pytest's own objects (`tmp_path`
is none, `capsys` and `monkeypatch` are) and what can't be copied are one for all ranks.
"""

import copy
import inspect
import types

import pytest


class Body:
    """What a test would run: body.call() on a rank runs it there.

    name: of the test. function: its code. owner: the object whose method it is, or None.
    arguments: {fixture or parameter: value}.
    """

    def __init__(self, item):
        self.name = item.nodeid
        self.function, self.owner = item.obj, None
        if inspect.iscoroutinefunction(self.function):
            pytest.fail(f"{self.name}: the marker ranks is not for async functions", pytrace=False)
        if isinstance(self.function, types.MethodType):
            self.function, self.owner = item.obj.__func__, item.obj.__self__
        names = item._fixtureinfo.argnames  # as pytest itself does it
        self.arguments = {name: item.funcargs[name] for name in names}

    def call(self):
        """Run the body, on this rank."""
        arguments = {name: _own(value) for name, value in self.arguments.items()}
        first = () if self.owner is None else (_own(self.owner),)
        self.function(*first, **arguments)


def _own(value):
    """A copy of a value for one rank, where it can be copied."""
    if type(value).__module__.partition(".")[0] in ("_pytest", "pytest"):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001  whatever its class raises: it can't be copied
        return value
