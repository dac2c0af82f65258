import json
import os

from teachdist.notebook.engines import tracebacks

MACHINERY = os.path.dirname(json.__file__) + os.sep


def caught(function):
    try:
        function()
    except Exception as error:  # noqa: BLE001
        return error


def names(trace):
    found = []
    while trace is not None:
        found.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return found


def test_own_frames_only():
    error = caught(lambda: json.loads("{"))
    assert len(names(error.__traceback__)) > 2
    assert names(tracebacks.own_frames(error.__traceback__, (MACHINERY,))) == ["caught", "<lambda>"]
    assert tracebacks.own_frames(error.__traceback__, ("/",)) is None


def test_causes_of_the_machinery_alone_are_left_out():
    def raise_from(cause):
        raise RuntimeError("told") from cause

    inner = caught(lambda: int("x"))
    error = caught(lambda: raise_from(inner))
    tracebacks._shorten_causes(error, ("/nowhere/",))
    assert error.__cause__ is inner
    tracebacks._shorten_causes(error, (os.sep,))
    assert error.__cause__ is None
    assert error.__context__ is None
