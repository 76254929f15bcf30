"""How the benchmarks measure: one thread, interleaved runs, medians, allocated bytes."""

import contextlib
import ctypes
import importlib.metadata
import io
import json
import lzma
import os
import platform
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from statistics import median

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import numpy as np
import torch
from PIL import Image

from sksetvalued.operators import instruction_set

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("sksetvalued", "torch", "scikit-learn", "skorch", "pytopk", "entmax", "jax", "jaxopt")


def settle():
    """Use one thread, and have much memory from the start, which stays with the process.

    Without that, large tensors are mapped anew at each call, in some processes and not in others,
    and what is measured is the kernel handing out pages.
    """
    torch.set_num_threads(1)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        m_trim_threshold, m_mmap_threshold, large = -1, -3, 2**30
        libc.mallopt(m_mmap_threshold, large)
        libc.mallopt(m_trim_threshold, large)
        torch.ones(large // 4, dtype=torch.uint8)


def machine(device="cpu"):
    """Return what the figures depend on: processor, system and versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    if device != "cpu":
        versions["cuda"] = torch.version.cuda
    return {
        "device": torch.cuda.get_device_name() if device != "cpu" else cpu_model(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "kernels": instruction_set(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def cpu_model():
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def seconds(function, device="cpu"):
    """Return (CPU seconds, wall seconds) of one call; on a GPU both are wall seconds."""
    if device != "cpu":
        torch.cuda.synchronize()
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    if device != "cpu":
        torch.cuda.synchronize()
        wall = time.perf_counter() - wall
        return wall, wall
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return cpu, wall


def interleaved(functions, rounds, budget, device="cpu", shortest=5e-3):
    """Time functions in turn (A B C A B C ...) and return the medians.

    A call too short for the clock is repeated within its turn. A function slow beside its share
    of the budget takes part in fewer rounds, spread over all of them, never fewer than two.

    Parameters
    ----------
    functions : dict of callables
    rounds : int
    budget : float
        Seconds for all functions together.
    device : {"cpu", "cuda"}
    shortest : float
        Seconds that a turn lasts at least.

    Returns
    -------
    timings : dict of {"cpu_ms", "wall_ms", "rounds"}
    """
    turns, samples = {}, {name: [] for name in functions}
    for name, function in functions.items():
        function()
        calls, spent = 1, seconds(function, device)[0]
        while spent < shortest:
            # The first calls are slower than those of a whole turn.
            calls = int(np.ceil(calls * np.clip(1.1 * shortest / max(spent, 1e-7), 2, 100)))
            spent = _turn(function, calls, device)[0]
        share = budget / len(functions) / spent
        turns[name] = calls, int(np.clip(share, min(2, rounds), rounds))
    for turn in range(rounds):
        for name, function in functions.items():
            calls, wanted = turns[name]
            if (turn + 1) * wanted // rounds > turn * wanted // rounds:
                samples[name].append([s / calls for s in _turn(function, calls, device)])
    return {name: _summary(values) for name, values in samples.items()}


def _turn(function, calls, device):
    """Return (CPU seconds, wall seconds) of several calls."""
    return seconds(lambda: [function() for _ in range(calls)], device)


def _summary(values):
    cpu, wall = zip(*values)
    return {
        "cpu_ms": 1e3 * median(cpu),
        "wall_ms": 1e3 * median(wall),
        "rounds": len(values),
    }


def ratios(timings, reference):
    """Add to each timing its ratio to the timing called `reference`."""
    base = timings[reference]
    for timing in timings.values():
        timing["cpu_ratio"] = timing["cpu_ms"] / base["cpu_ms"]
        timing["wall_ratio"] = timing["wall_ms"] / base["wall_ms"]
    return timings


def peak_bytes(function, device="cpu"):
    """Return the most memory held during a call, beyond what was held before.

    On the CPU it is an upper bound, independent of what else runs: the most that torch holds and
    the most that NumPy (with Python's objects) holds, each by its own trace, are added up, apart
    for what comes before and what comes with the call of ``backward``.
    """
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    function()
    return max(map(sum, zip(_torch_peaks(function), _numpy_peaks(function))))


@contextlib.contextmanager
def _before_backward(action):
    """Call `action` when a tensor's `backward` is called."""
    backward = torch.Tensor.backward

    def announced(*args, **kwargs):
        action()
        return backward(*args, **kwargs)

    torch.Tensor.backward = announced
    try:
        yield
    finally:
        torch.Tensor.backward = backward


def _torch_peaks(function):
    """Return the most bytes that torch holds before each ``backward`` and after the last one."""

    def mark():
        with torch.profiler.record_function(_torch_peaks.__name__):
            pass

    trace = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    )
    with trace, _before_backward(mark):
        function()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    events = [event for event in events if event["name"] in ("[memory]", _torch_peaks.__name__)]
    events.sort(key=lambda event: event["ts"])
    held, peaks = 0, [0]
    for event in events:
        if event["name"] == "[memory]":
            # Below zero: the gradient of an earlier call is freed.
            held = max(held + event["args"]["Bytes"], 0)
            peaks[-1] = max(peaks[-1], held)
        else:
            peaks.append(held)
    return peaks


def _numpy_peaks(function):
    """Return the most bytes that NumPy and Python hold before each ``backward`` and after it."""
    peaks = []

    def mark():
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        tracemalloc.reset_peak()

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with _before_backward(mark):
            function()
        mark()
    finally:
        tracemalloc.stop()
    return peaks


def kernel_seconds(function, device="cuda", most=0.05):
    """Return how long the operations of a call compute, without what lies between them.

    On a GPU that is the time of its kernels, however long it waits for the next to be launched.
    It is the mean of 20 calls, or of as many as take `most` seconds: each kernel leaves a trace.
    """
    function()
    calls = int(np.clip(most / max(seconds(function, device)[1], 1e-7), 1, 20))
    activity = getattr(torch.profiler.ProfilerActivity, device.upper())
    with torch.profiler.profile(activities=[activity]) as trace:
        for _ in range(calls):
            function()
        if device != "cpu":
            torch.cuda.synchronize()
    if device == "cpu":
        times = [event.self_cpu_time_total for event in trace.events()]
    else:
        kind = torch.autograd.DeviceType.CUDA
        events = [event for event in trace.events() if event.device_type == kind]
        times = [event.time_range.elapsed_us() for event in events]
    return sum(times) / calls / 1e6


def slope(x, y):
    """Return the exponent of the power law that fits best, by least squares of logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def write_json(path, results):
    """Write results where the reports find them, compressed if the name ends in ``.xz``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = (json.dumps(results, indent=1) + "\n").encode()
    packed = path.suffix == ".xz"
    path.write_bytes(lzma.compress(content, preset=lzma.PRESET_EXTREME) if packed else content)


def read_json(path):
    """Return what `write_json` wrote."""
    content = path.read_bytes()
    return json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)


def is_there(path, what):
    """Return whether a file of data is there; if not, say what is left out."""
    if not path.exists():
        print(
            f"{what} left out: {path} does not exist; give its folder by --data",
            file=sys.stderr,
        )
    return path.exists()


def rounded(value, digits=4):
    """Round every number in nested dicts and lists to so many significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def save_picture(figure, path, n_colours=48):
    """Write a figure of matplotlib as a small file: lines and letters need few colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80)
    # The method that keeps the colours of thin lines.
    method = Image.Quantize.MAXCOVERAGE
    image = Image.open(drawn).convert("RGB").quantize(n_colours, method=method, dither=0)
    image.save(path, optimize=True)


def link(picture, page):
    """Return the address of a picture as seen from a page."""
    return Path(os.path.relpath(picture.resolve(), page.resolve().parent)).as_posix()


def table(header, rows):
    """Return the lines of a markdown table."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines] + [""]


def short(value):
    """Return a number as few characters, or a dash for None."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}" if value < 9.95 else f"{value:.0f}"
