"""Measure the speed of the losses and of training, and write their pages.

    python -m benchmarks

runs speed.py and training.py, which takes long and replaces their results and pages. The other
benchmarks of this folder are started one by one.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(argv=None):
    """Run the command line."""
    argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(argv)
    for script in ("speed.py", "training.py"):
        for action in ("run", "report"):
            subprocess.run([sys.executable, str(HERE / script), action], check=True)


if __name__ == "__main__":
    main()
