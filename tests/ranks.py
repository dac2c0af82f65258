"""Ranks for our own tests: n processes that share a store, each calling the same function.

    from ranks import on

    def test_sum():
        def total():
            x = torch.ones(1) * dist.get_rank()
            dist.all_reduce(x)
            return x.item()

        assert on(3, total) == [3, 3, 3]

What can be shown on virtual ranks needs none of this: `@pytest.mark.ranks(3)`, see docs/testing.md.

- ``run_ranks(n, fn, *args)``: new ranks for this one call.
- ``RankPool(n)``: ranks that stay, see `teachdist.testing.pool`.
- ``shared_pool(n)``: a RankPool kept between tests; what most tests want, at a millisecond a call.
- ``on(n, fn, *args)``: the same in one word, on this package's backend.
"""

import atexit

from teachdist.testing.pool import (
    GRACE,
    RankDiedError,
    RankPool,
    RankTimeoutError,
    SharedPools,
    no_main,
)

BACKENDS = ["gloo", "teachdist"]  # to parametrise tests with: on the oracle and on ours
__all__ = [
    "BACKENDS", "GRACE", "RankDiedError", "RankPool", "RankTimeoutError", "no_main", "on", "raised",
    "run_ranks", "shared_pool",
]  # fmt: skip

_shared = SharedPools()
atexit.register(_shared.close)


def run_ranks(n, fn, *args, backend="gloo", timeout=60, **kwargs):
    """Call fn on n new ranks; a list of what it returned, by rank."""
    with RankPool(n, backend=backend, timeout=timeout) as pool:
        return pool.run(fn, *args, **kwargs)


def shared_pool(n, backend="gloo"):
    """The pool of n ranks on backend that tests share, made when first asked for."""
    return _shared.get(n, backend)


def on(n, fn, *args, backend="teachdist", **kwargs):
    """Call fn on the n shared ranks of a backend; what it returned, by rank."""
    return shared_pool(n, backend).run(fn, *args, **kwargs)


def raised(call, *args, **kwargs):
    """The exception that a call raises, as (class name, text), or None. For use on the ranks."""
    try:
        call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  the test looks at it
        return type(error).__name__, str(error)
    return None
