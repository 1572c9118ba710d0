"""KernelBench levels 1 to 3 on the processor, float32: what einnet's backend makes of each, beside eager mode and Inductor.

    python -m benchmarks.kernelbench FOLDER            a copy of the suite's repository
    python -m benchmarks.kernelbench FOLDER level2/    some of it
"""

from __future__ import annotations

import sys

from benchmarks.suites.command import main

if __name__ == "__main__":
    sys.exit(main("kernelbench", __doc__))
