"""GraphNet's samples on the processor: what einnet's backend makes of each, beside eager mode and Inductor.

    python -m benchmarks.graphnet FOLDER                    a copy of the suite's repository
    python -m benchmarks.graphnet FOLDER torchvision/ --every 10
"""

from __future__ import annotations

import sys

from benchmarks.suites.command import main

if __name__ == "__main__":
    sys.exit(main("graphnet", __doc__))
