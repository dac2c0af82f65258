"""What teachdist writes on the log, and how much of it.

The logger is called "teachdist". Unless the program sets up logging itself, lines go to stderr
with "[teachdist]" in front. The level is that of TEACHDIST_LOG (error, warning, info, debug or
trace); without it, it follows the two variables that set the level of torch's own C++ log, as
torch's documentation lists them:

    TORCH_CPP_LOG_LEVEL   TORCH_DISTRIBUTED_DEBUG   level
    ERROR                 any                       error
    WARNING               any                       warning       (the default)
    INFO                  OFF                       info
    INFO                  INFO                      debug
    INFO                  DETAIL                    trace

What comes at which level: a rank waits (warning); a delegated call is in trouble (error); groups
made, met anew, left (info); each call at its end, with its time (debug); each look around while
waiting (trace).
"""

import logging
import os
import sys

TRACE = 5
LEVELS = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": TRACE,
}
log = logging.getLogger("teachdist")


def level(environment=os.environ):
    """The level that the environment asks for. Raises ValueError for a name that is none."""
    asked = environment.get("TEACHDIST_LOG", "").strip().lower()
    if asked:
        if asked not in LEVELS:
            raise ValueError(f"TEACHDIST_LOG={asked!r}: known are {', '.join(LEVELS)}")
        return LEVELS[asked]
    cpp = environment.get("TORCH_CPP_LOG_LEVEL", "WARNING").strip().upper()
    # torch accepts numbers, and FATAL.
    cpp = {"0": "INFO", "1": "WARNING", "2": "ERROR", "3": "ERROR", "FATAL": "ERROR"}.get(cpp, cpp)
    if cpp == "INFO":
        detail = environment.get("TORCH_DISTRIBUTED_DEBUG", "OFF").strip().upper()
        return {"INFO": logging.DEBUG, "DETAIL": TRACE}.get(detail, logging.INFO)
    return logging.ERROR if cpp == "ERROR" else logging.WARNING


class _Stderr(logging.StreamHandler):
    """To sys.stderr as it is when a line comes, unless the program has set up logging itself."""

    def __init__(self):
        logging.Handler.__init__(self)

    @property
    def stream(self):
        return sys.stderr

    def emit(self, record):
        if not logging.root.handlers:
            super().emit(record)


def configure():
    """Give the logger its level and its way to stderr; once."""
    logging.addLevelName(TRACE, "TRACE")
    wrong = None
    if log.level == logging.NOTSET:
        try:
            log.setLevel(level())
        except ValueError as error:  # not worth ending a job for
            log.setLevel(logging.WARNING)
            wrong = error
    if not any(isinstance(handler, _Stderr) for handler in log.handlers):
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("[teachdist] %(message)s"))
        log.addHandler(handler)
    if wrong is not None:
        log.warning("%s; taken is warning", wrong)
