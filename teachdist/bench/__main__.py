"""`python -m teachdist.bench`."""

import sys

from teachdist.bench import main

if __name__ == "__main__":
    sys.exit(main())
