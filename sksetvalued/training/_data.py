"""Batches: gathered whole in memory, or made by the workers of a DataLoader."""

import multiprocessing
import sys
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from itertools import islice, repeat
from pickle import PicklingError

import torch
from torch.utils.data import DataLoader, Dataset

from ..inputs import Inputs, moved

#: Arguments of a DataLoader that concern its worker processes.
WORKER_ARGUMENTS = {
    "multiprocessing_context",
    "persistent_workers",
    "prefetch_factor",
    "timeout",
    "worker_init_fn",
}

#: What is said of a worker process that ended.
DEAD_WORKER = "It reads samples"

#: What is said of a worker that cannot share a batch.
NOT_SHARED = "a worker cannot put a batch into shared memory"

#: What to do without workers.
NO_WORKERS = (
    "net_params={'iterator_train__num_workers': 0, 'iterator_valid__num_workers': 0} reads them "
    "in this process"
)

#: Entries of a table that are gathered at once: few enough to stay in the processor's cache.
GATHERED = 1 << 18


def take_rows(data, indices):
    """Gather rows of a tensor or of inputs."""
    if isinstance(data, Inputs):
        return data.take(indices)
    return data.index_select(0, moved(indices, data.device))


class TrainingSet(Dataset):
    """Inputs with their targets, weights and positions.

    A batch is ``(x, (target, sample_weight or None, index))``.

    Parameters
    ----------
    inputs : Inputs
    target : LongTensor of shape (n_samples,), or Inputs for multi-label indicators
    sample_weight : Tensor of shape (n_samples,), optional
    part : Part, optional
        The part of this process in a batch: `x` then holds its rows only, the rest of the batch
        is whole.
    n_whole : int, optional
        Number of samples of the data that these are a part of, by which "auto" parameters go:
        networks that are trained on parts of the data are then trained like that of all.
    """

    def __init__(self, inputs, target, sample_weight=None, part=None, n_whole=None):
        self.inputs = inputs
        self.target = target
        self.sample_weight = sample_weight
        self.part = part
        self.n_whole = len(inputs) if n_whole is None else n_whole

    def __len__(self):
        return len(self.inputs)

    def n_batches(self, batch_size):
        """Return the number of batches of an epoch."""
        return count_batches(len(self), batch_size)

    def __getitem__(self, index):
        return self.__getitems__([index])

    def __getitems__(self, indices):
        seed, indices = getattr(indices, "seed", None), torch.as_tensor(indices)
        weight = None if self.sample_weight is None else take_rows(self.sample_weight, indices)
        target = take_rows(self.target, indices)
        own = indices if self.part is None else indices[self.part.rows(len(indices))]
        x = self.inputs.take(own) if seed is None else self.inputs.take(own, seed)
        return x, (target, weight, indices)

    def to(self, device, part=None):
        """Return the set with its data moved to `device`, unless worker processes read them."""
        data = self.inputs, self.target, self.sample_weight
        if self.inputs.in_memory:
            data = [None if values is None else values.to(device) for values in data]
        return TrainingSet(*data, part, self.n_whole)


class StreamSet(TrainingSet):
    """A stream with the targets of its labels, to be gone through in order.

    Parameters
    ----------
    inputs : StreamInputs
    encode : callable
        Turns a label into a class index.
    class_weight : Tensor of shape (n_classes,), optional
        Weights of the samples, by class.
    """

    def __init__(self, inputs, encode, class_weight=None):
        weight = None
        if class_weight is not None:  # those of the first samples, for their statistics
            weight = class_weight[[encode(label) for label in inputs.labels]]
        super().__init__(inputs, None, weight)
        self.encode = encode
        self.class_weight = class_weight

    def n_batches(self, batch_size):
        return len(self) // min(batch_size, len(self))

    def __getitems__(self, indices):
        raise TypeError("a Stream has no training samples by position.")

    def to(self, device, part=None):
        """Return the set itself, whose samples are read batch by batch."""
        return self

    def make_batches(self, batch_size, generator, loader_params):
        """Return an iterable over the batches of one epoch after the other."""
        loader = Loader(
            self.inputs.repeated(self.encode),
            batch_size=min(batch_size, len(self)),
            collate_fn=self._collate,
            generator=generator,
            **loader_params,
        )
        return StreamBatches(loader, self.n_batches(batch_size))

    def _collate(self, triples):
        x, target = self.inputs.collate(triples)
        weight = None if self.class_weight is None else self.class_weight[target]
        return shared((x, (target, weight, None)))


class StreamBatches:
    """Iterate over an endless loader, as many whole batches an epoch as its samples make."""

    def __init__(self, loader, n_batches):
        self.loader = loader
        self.n_batches = n_batches
        self.going_on = None

    def __len__(self):
        return self.n_batches

    def __iter__(self):
        if self.going_on is None:
            self.going_on = iter(self.loader)
        return islice(self.going_on, len(self))


class BatchIndices:
    """Index batches of an epoch; a last batch of one sample joins the one before.

    (Batch normalisation cannot be trained on one sample.)
    """

    def __init__(self, n_samples, batch_size, shuffle, generator):
        self.n_samples = n_samples
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.generator = generator

    def __len__(self):
        n_full, rest = divmod(self.n_samples, self.batch_size)
        return max(n_full + (rest > 1), 1)

    def __iter__(self):
        n = self.n_samples
        order = torch.randperm(n, generator=self.generator) if self.shuffle else torch.arange(n)
        sizes = [self.batch_size] * (len(self) - 1)
        return iter(order.split([*sizes, n - sum(sizes)]))


def count_batches(n_samples, batch_size):
    """Return the number of batches of an epoch."""
    return len(BatchIndices(n_samples, batch_size, shuffle=False, generator=None))


class MemoryBatches:
    """Iterate over batches gathered from memory."""

    def __init__(self, dataset, batch_indices):
        self.dataset = dataset
        self.batch_indices = batch_indices

    def __len__(self):
        return len(self.batch_indices)

    def __iter__(self):
        batches = iter(self.batch_indices)
        n = self._n_together()
        while some := list(islice(batches, n)):
            if n == 1:
                yield self.dataset.__getitems__(some[0])
            else:
                yield from self._gather(some)

    def _n_together(self):
        """Return how many batches are gathered at once, which small ones are far faster so."""
        entries = self.dataset.inputs.entries_per_sample
        parted = self.dataset.part is not None or not torch.is_tensor(self.dataset.target)
        if entries is None or parted:
            return 1
        return max(1, int(GATHERED / max(1, entries * self.batch_indices.batch_size)))

    def _gather(self, batches):
        sizes = [len(indices) for indices in batches]
        x, (target, weight, _) = self.dataset.__getitems__(torch.cat(batches))
        weights = repeat(None) if weight is None else weight.split(sizes)
        parts = zip(x.split(sizes), target.split(sizes), weights, batches, strict=False)
        return ((rows, tuple(rest)) for rows, *rest in parts)


def shared(batch):
    """Return a batch, of a worker in shared memory.

    It gets there anyway, but by a thread of the worker, whose errors end no training.
    """
    if torch.utils.data.get_worker_info() is not None:
        try:
            _share(batch)
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f"{NOT_SHARED} ({error})") from error
    return batch


def _share(part):
    if isinstance(part, torch.Tensor) and part.layout is torch.strided:
        part.share_memory_()
    elif isinstance(part, Mapping):
        _share(list(part.values()))
    elif isinstance(part, list | tuple):
        for one in part:
            _share(one)


class _Indices(list):
    """Indices of a batch, and the seed of what its samples draw."""

    seed = None


class _IndexLists:
    """Give a DataLoader plain lists, which it sends to its workers cheaply.

    Where code of the user may draw random numbers, each epoch has a seed for it, so that they are
    the same in any number of workers and processes.

    Parameters
    ----------
    batch_indices : BatchIndices
    draws : bool
        Whether there is such code.
    moves_on : bool
        Whether an epoch has other seeds than the one before even where its order is the same.
    """

    def __init__(self, batch_indices, draws, moves_on):
        self.batch_indices = batch_indices
        self.draws = draws
        self.moves_on = moves_on and not batch_indices.shuffle

    def __len__(self):
        return len(self.batch_indices)

    def __iter__(self):
        # A generator: a DataLoader asks for more iterators than it uses, and only the one that it
        # uses may draw an order.
        seed = self._seed() if self.draws else None
        for batch in self.batch_indices:
            indices = _Indices(batch.tolist())
            indices.seed = seed
            yield indices

    def _seed(self):
        """Draw a seed, from a copy of the generator so that the order is that without it."""
        generator = self.batch_indices.generator
        if not self.moves_on:
            state, generator = generator.get_state(), torch.Generator()
            generator.set_state(state)
        return int(torch.randint(2**62, (), generator=generator))


class Loader(DataLoader):
    """A DataLoader whose workers end with its first error; it says what to do when one dies."""

    def __iter__(self):
        try:
            batches = super().__iter__()
        except (OSError, AttributeError, TypeError, PicklingError) as error:
            if not self.num_workers:
                raise
            raise RuntimeError(f"no worker can be started: {error}. {NO_WORKERS}.") from error
        # Seeds are drawn by now, as without it, and not at the first batch.
        return self._guarded(batches)

    def _guarded(self, batches):
        try:
            yield from batches
        except Exception as error:
            if self.num_workers:
                # An error of a worker and all workers are in a circle of references: they would
                # wait for the garbage collection, which then waits seconds for them.
                batches._shutdown_workers()
                self._iterator = None  # so that a further epoch starts others
            if not isinstance(
                error, RuntimeError | ConnectionError | EOFError | FileNotFoundError
            ):
                raise
            message = str(error)
            if not isinstance(error, RuntimeError) and self.num_workers:
                # What it raises itself is passed on as "Caught ... in DataLoader worker process".
                message = message if "Caught" in message else f"DataLoader worker: {message}."
            if message.startswith("DataLoader timed out"):
                raise RuntimeError(
                    f"{message}: a worker process took longer for a batch than the `timeout` in "
                    "net_params allows. Raise it, or use smaller batches."
                ) from error
            if NOT_SHARED in message:
                told = message[message.rindex(NOT_SHARED) :].strip()
                raise RuntimeError(
                    f"{told}. That is /dev/shm, which has 64 MB in a container of Docker, or what "
                    "--shm-size says: smaller batches need less. Where too many files are open, "
                    f"raise the limit (ulimit -n). {NO_WORKERS}."
                ) from error
            if not message.startswith("DataLoader"):
                raise
            raise _dead_worker(message) from error


def _dead_worker(message):
    script = "" if forks() else ", or a script without `if __name__ == '__main__':`"
    return RuntimeError(
        f"{message} {DEAD_WORKER}: too little memory (or shared memory), a crash of the Dataset "
        f"or the transform{script}, ends it. Use fewer workers, or none: {NO_WORKERS}, which then "
        "tells the cause."
    )


def forks():
    """Return whether new processes are forks of this one, as Linux had them up to Python 3.13."""
    method = multiprocessing.get_start_method(allow_none=True)
    return (method or multiprocessing.get_all_start_methods()[0]) == "fork"


@contextmanager
def dead_workers_named():
    """Say what to do of a worker process that ends while this one does something else."""
    try:
        yield
    except RuntimeError as error:
        message = str(error)
        if not message.startswith("DataLoader worker") or DEAD_WORKER in message:
            raise
        raise _dead_worker(message) from error


def make_batches(dataset, batch_size, generator, shuffle=False, **loader_params):
    """Return an iterable over the batches of one epoch.

    Parameters
    ----------
    dataset : TrainingSet
    batch_size : int
    generator : torch.Generator
        Source of the order, and of the seeds of workers.
    shuffle : bool
    **loader_params
        Arguments of :class:`torch.utils.data.DataLoader`; not used for data in memory, and
        those of workers only where there are workers.
    """
    if isinstance(dataset, StreamSet):
        return dataset.make_batches(batch_size, *_for_loader(generator, loader_params))
    indices, inputs = BatchIndices(len(dataset), batch_size, shuffle, generator), dataset.inputs
    if inputs.in_memory:
        return MemoryBatches(dataset, indices)
    of_workers, loader_params = _for_loader(generator, loader_params, dataset.part)
    return Loader(
        dataset,
        batch_sampler=_IndexLists(
            indices, inputs.runs_user_code, getattr(inputs, "training", False)
        ),
        collate_fn=shared,
        generator=of_workers,
        **loader_params,
    )


def _for_loader(generator, loader_params, part=None):
    """Return the generator and the arguments of a DataLoader."""
    # The seeds of workers come from a copy of the generator: the order of the samples is then
    # the same with any number of workers, and as for data in memory.
    of_workers = torch.Generator()
    of_workers.set_state(generator.get_state())
    if part is not None:
        seeds = torch.randint(2**62, (part.count,), generator=of_workers)
        of_workers.manual_seed(int(seeds[part.rank]))
    if loader_params.get("num_workers"):
        begin = _BeginWorker(loader_params.get("worker_init_fn"))
        loader_params = {**loader_params, "worker_init_fn": begin}
    else:
        loader_params = {k: v for k, v in loader_params.items() if k not in WORKER_ARGUMENTS}
    return of_workers, loader_params


class _BeginWorker:
    """What a worker process does first.

    One that a thread of a ThreadPoolExecutor has forked would end by waiting for all threads of
    that pool, itself among them: an error, which ends it like a crash.

    Parameters
    ----------
    then : callable or None
        ``worker_init_fn`` of the user.
    """

    def __init__(self, then):
        self.then = then

    def __call__(self, worker_id):
        pools = sys.modules.get("concurrent.futures.thread")
        getattr(pools, "_threads_queues", {}).pop(threading.current_thread(), None)
        if self.then is not None:
            self.then(worker_id)
