"""``await`` at the top of a cell: as in any notebook, on the event loop that the engine runs on.

So a task that a cell has started goes on between cells, and the next cell can wait for it.

Two repairs are needed, of ipyparallel 9.2 with ipykernel 7:

- ipykernel asks its thread for subshells which thread is the main one. ipyparallel's kernel has no
  such thread; the question raised, and the request was never answered. ``_NoSubshells`` answers.
- ipykernel turns SIGINT into a cancellation, which comes through only where the cell awaits, not
  where it is blocked, in a collective for example. Here it is raised there as well.

A ``KeyboardInterrupt`` that leaves a task ends the loop, and with it the engine. ``Interrupt`` is
one for everybody who looks for it, and for the loop the end of a cancelled task.
"""

import asyncio
import contextlib
import signal
import threading

_state = {"running": False, "interrupted": False, "cell": None}


class Interrupt(asyncio.CancelledError, KeyboardInterrupt):
    """SIGINT, in a cell that awaits."""


Interrupt.__name__ = Interrupt.__qualname__ = "KeyboardInterrupt"  # what the reader sees


class _NoSubshells:
    """Stands for the thread that serves subshells, where there is none: false, and not None."""

    parent_thread = threading.main_thread()

    def __bool__(self):
        return False


def install(kernel):
    """Let cells of this kernel await."""
    if getattr(kernel, "shell_channel_thread", None) is None:
        type(kernel)._supports_kernel_subshells = False
        kernel.shell_channel_thread = _NoSubshells()
    shell = kernel.shell
    kernel._cancel_on_sigint = lambda cell: _interruptible(cell, shell)
    shell.set_custom_exc((asyncio.CancelledError,), _show_cancelled)
    shell.events.register("pre_run_cell", _begins)
    shell.events.register("post_run_cell", _ends)


@contextlib.contextmanager
def _interruptible(cell, shell):
    """While the task ``cell`` runs, SIGINT ends what it is doing now."""
    loop = asyncio.get_running_loop()

    def interrupt(_signum, frame):
        if not _state["running"]:
            return  # who interrupts asks again
        _state["interrupted"] = True
        at_work = asyncio.current_task(loop)
        if at_work is not cell:  # it waits, perhaps for the task that is at work
            cell.cancel()
            loop.call_soon_threadsafe(lambda: None)  # the loop may be asleep
        if at_work is not None and (at_work is not cell or _in_a_cell(frame, shell)):
            raise Interrupt

    _state.update(interrupted=False, cell=cell)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _state["cell"] = None


def waiting_frames():
    """The frames of a cell that awaits something, innermost first; none if none does."""
    waits = _state["cell"] and _state["cell"].get_coro()
    frames = []
    while getattr(waits, "cr_frame", None) is not None:
        frames.insert(0, waits.cr_frame)
        waits = waits.cr_await
    return frames


def _in_a_cell(frame, shell):
    """Whether the user's code is being executed, and not what surrounds it."""
    while frame is not None and frame.f_code.co_filename not in shell.compile._filename_map:
        frame = frame.f_back
    return frame is not None


def _begins(_info):
    _state.update(running=True)


def _ends(result):
    _state.update(running=False)
    if result is not None and _was_interrupted(result.error_in_exec):
        error = result.error_in_exec
        result.error_in_exec = Interrupt(*error.args).with_traceback(error.__traceback__)


def _was_interrupted(error):
    return _state["interrupted"] and isinstance(error, asyncio.CancelledError)


def _show_cancelled(shell, kind, error, trace, tb_offset=None):
    """Show a cancellation that comes from SIGINT as what it is."""
    if _was_interrupted(error):
        kind, error = Interrupt, Interrupt(*error.args)
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
