"""Patches: names of other modules that lead here while a rehearsal runs, and back afterwards.

Each looks whether its caller is a rank's thread; for everybody else it does what it always did.
Nothing is patched while no rehearsal runs.
"""

import contextlib


class Patches:
    """Puts values in place of attributes or items, and puts the old ones back."""

    def __init__(self):
        self._undo = contextlib.ExitStack()

    def attribute(self, owner, name, value):
        """owner.name = value, until `close`. Attributes that do not exist are left alone."""
        if not hasattr(owner, name):
            return
        own = name in vars(owner) if isinstance(owner, type) else True
        old = vars(owner)[name] if own and isinstance(owner, type) else getattr(owner, name)
        if own:
            self._undo.callback(setattr, owner, name, old)
        else:
            self._undo.callback(delattr, owner, name)
        setattr(owner, name, value)

    def item(self, mapping, key, value):
        """mapping[key] = value, until `close`."""
        if key in mapping:
            self._undo.callback(mapping.__setitem__, key, mapping[key])
        else:
            self._undo.callback(mapping.pop, key, None)
        mapping[key] = value

    def callback(self, function, *arguments):
        """Call function(*arguments) at `close`."""
        self._undo.callback(function, *arguments)

    def for_ranks(self, scheduler, owner, name, make):
        """On ranks' threads owner.name is make(original); elsewhere what it was."""
        original = getattr(owner, name, None)
        if original is None:
            return
        ours = make(original)

        def either(*args, **kwargs):
            if scheduler.me() is None:
                return original(*args, **kwargs)
            return ours(*args, **kwargs)

        either.__name__ = getattr(original, "__name__", name)
        either.__doc__ = getattr(original, "__doc__", None)
        self.attribute(owner, name, either)

    def close(self):
        """Put everything back."""
        self._undo.close()
