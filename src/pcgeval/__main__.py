"""`python -m pcgeval` is the same as `pcgeval`."""

import sys

from pcgeval.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
