"""Shared fits at length: three processes, real launchers, processes that hang, accuracies."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import test_parallel as short
from processes import Group
from sklearn.datasets import load_digits
from skorch.callbacks import Callback
from torch import distributed as dist

from sksetvalued import TopKClassifier, load

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "guide" / "scale.md"


@pytest.fixture(scope="module")
def three():
    short.fit("LBFGS")
    with Group(3) as group:
        yield group


@pytest.mark.parametrize("name", short.FITS)
def test_three_processes_give_what_one_gives(three, name):
    short.assert_close(short.same(three(short.fit, name)), short.fit(name))


def fit_digits(**params):
    X, y = load_digits(return_X_y=True)
    clf = TopKClassifier(2, random_state=0, max_epochs=6, **params)
    images = (X.reshape(-1, 8, 8) * 15).astype(np.uint8)
    clf.fit(images[:1200], y[:1200])
    reading = {
        "network": clf.net_.module_.state_dict(),
        "accuracy": clf.score(images[1200:], y[1200:]),
    }
    return short.plain(reading)


def test_batch_normalisation_of_parts_is_as_accurate(three):
    found = short.same(three(fit_digits))
    # Half a percent of 597 samples is three of them.
    assert found["accuracy"] > fit_digits()["accuracy"] - 0.015


def test_bfloat16(three):
    assert short.same(three(fit_digits, precision="bf16"))["accuracy"] > 0.9


def fit_compiled():
    params = {"compile": True, "net_params": {"compile__backend": "aot_eager"}}
    clf = TopKClassifier(2, batch_size=50, **params, **short.COMMON)
    return short.readable(clf.fit(short.X, short.y), short.X)


def test_compiled_networks(three):
    short.assert_close(short.same(three(fit_compiled, limit=200)), fit_compiled())


class Hang(Callback):
    def on_epoch_begin(self, net, **kwargs):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)


def fit_and_hang():
    TopKClassifier(2, callbacks=[Hang()], **short.COMMON).fit(short.X, short.y)


def fit_in_first():
    if dist.get_rank() == 0:
        TopKClassifier(2, **short.COMMON).fit(short.X, short.y)


def test_processes_that_do_not_answer_are_noticed_at_the_timeout():
    start = time.monotonic()
    with Group(3, timeout=5) as group:
        error, *others = group.each(fit_in_first)
        assert others == [None, None]
        with pytest.raises(RuntimeError, match="did not all call fit"):
            raise error
    with Group(3, timeout=5) as group:
        for error in group.each(fit_and_hang, ranks=[0, 2]):
            with pytest.raises(RuntimeError, match="a process ended, or did not answer in time"):
                raise error
    assert time.monotonic() - start < 40


def run_script(folder, *launcher):
    script = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.M)[0]
    (folder / "train.py").write_text(script)
    return [sys.executable, "-m", "torch.distributed.run", *launcher, folder / "train.py"]


@pytest.mark.parametrize("n_machines", [1, 2])
def test_the_script_of_the_guide_runs_under_torchrun(tmp_path, n_machines):
    launcher = ["--standalone", "--nproc-per-node", "2"]
    if n_machines == 2:
        launcher = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "7"]
        launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:29571"]
    script = run_script(tmp_path, *launcher)
    jobs = [subprocess.Popen(script, cwd=tmp_path) for _ in range(n_machines)]
    assert [job.wait(300) for job in jobs] == [0] * n_machines
    X, y = load_digits(return_X_y=True)
    assert load(tmp_path / "digits.safetensors").score(X, y) > 0.9
