"""Measure everything that needs no data, and write the pages: ``python -m benchmarks``."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

for script in ("speed.py", "training.py"):
    for action in ("run", "report"):
        subprocess.run([sys.executable, str(HERE / script), action], check=True)
