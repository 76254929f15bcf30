"""Programs in fresh processes, for which torch and scikit-learn are imported once."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def run_code(code, folder=".", **environment):
    """Run code in a process that has imported torch and scikit-learn, and nothing of this package.

    Return what `subprocess.run` returns, with text. Where systems can fork, the process is a fork
    of one that lasts as long as this one.
    """
    environment = {**os.environ, **environment}
    if "forkserver" not in multiprocessing.get_all_start_methods():
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "sklearn"])
    with tempfile.TemporaryDirectory() as told:
        streams = Path(told, "stdout"), Path(told, "stderr")
        args = code, str(folder), environment, streams
        process = context.Process(target=_execute, args=args)
        process.start()
        process.join()
        texts = [stream.read_text() for stream in streams]
    return subprocess.CompletedProcess(code, process.exitcode, *texts)


def _execute(code, folder, environment, streams):
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, "")
    exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
