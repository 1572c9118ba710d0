"""`python -m einnet` is the command `einnet`."""

import sys

from einnet.cli import main

sys.exit(main())
