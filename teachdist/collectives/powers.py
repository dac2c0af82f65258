"""Powers of two, and what to do when the number of ranks is none.

The idea: many algorithms pair up rank r and rank r ^ distance, for distance 1, 2, 4, ... With p
ranks that works only when p is a power of two. Otherwise let P be the largest power of two below p.
Among the first 2(p - P) ranks each odd one becomes the *guest* of its even neighbour, its *host*:
it hands over its data, rests, and is told the result at the end. The P ranks that stay are numbered
anew.

    p = 6, P = 4        rank     0    1    2    3    4    5
                        number   0  guest  1  guest  2    3

Cost: one more message each way, for the whole data where everybody must end with all of it.

Source: Rabenseifner, "Optimization of collective reduction operations" (2004); Thakur,
Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005).
"""


def distances(size):
    """The powers of two below `size`, ascending: 1, 2, 4, ..."""
    return [1 << bit for bit in range((size - 1).bit_length())]


def power_of_two(size):
    """Powers of two."""
    return size & (size - 1) == 0


def xor_symmetry(size):
    """All ranks do the same up to r -> r ^ x, as long as nobody is a guest."""
    return "xor" if power_of_two(size) else None


def largest_power(size):
    """P, the largest power of two that is at most `size`."""
    return 1 << (size.bit_length() - 1)


def is_guest(rank, size):
    """Whether `rank` hands its data to its left neighbour and waits."""
    return rank % 2 == 1 and rank < 2 * (size - largest_power(size))


def has_guest(rank, size):
    """Whether the right neighbour of `rank` is its guest."""
    return rank % 2 == 0 and rank < 2 * (size - largest_power(size))


def number_of(rank, size):
    """The number of a rank among the P that stay; not for guests."""
    guests = size - largest_power(size)
    return rank // 2 if rank < 2 * guests else rank - guests


def rank_of(number, size):
    """The rank that has this number: the inverse of `number_of`."""
    guests = size - largest_power(size)
    return 2 * number if number < guests else number + guests
