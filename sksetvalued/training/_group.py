"""What the processes of a torch.distributed group tell each other in a fit, errors included."""

import contextlib
import re

from torch import distributed as dist

#: In what torch says where a process ended or did not answer, whatever the backend.
LOST_PROCESS = re.compile(
    r"connect|clos|broken pipe|time(d )?out|peer|socket|recv|network|remote|abort", re.IGNORECASE
)


class Group:
    """The processes of the default group, in a group of their own for the time of a fit.

    Its backend is gloo, which fails at once in all processes when one leaves the group.

    Attributes
    ----------
    rank, count : int
    """

    def __init__(self):
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        try:
            self._group = dist.new_group(backend="gloo", timeout=_timeout())
        except RuntimeError as error:
            raise RuntimeError(
                f"The {self.count} processes of the torch.distributed group did not all call fit "
                "in the time that the group allows: each has to call it, with the same data. See "
                "the timeout of init_process_group."
            ) from error
        self._told = f"sksetvalued error in {self._group.group_name}"
        # A process that refused its arguments at once would leave while others connect.
        self.send(dist.barrier)

    @property
    def is_first(self):
        return self.rank == 0

    @contextlib.contextmanager
    def together(self):
        """End in all processes or, by an error, in none."""
        try:
            yield
            self.all(None)
        except BaseException as error:
            self._tell(error)
            raise
        finally:
            self._leave()

    def _tell(self, error):
        text = f"process {self.rank} raised {type(error).__name__}: {error}"
        # Where the store is gone, its process is, which the others see.
        with contextlib.suppress(RuntimeError):
            _store().compare_set(self._told, "", text)

    def _leave(self):
        group, self._group = self._group, None
        if group is not None:
            dist.destroy_process_group(group)

    def _failure(self, reason):
        told = None
        with contextlib.suppress(RuntimeError):
            if _store().check([self._told]):
                told = _store().get(self._told).decode()
        if told is None:
            lost = LOST_PROCESS.search(reason)
            told = "a process ended, or did not answer in time" if lost else "a message failed"
            told = f"{told} ({reason.splitlines()[0]})"
        return RuntimeError(
            f"The fit was shared by {self.count} processes and cannot go on without all of "
            f"them: {told}"
        )

    def send(self, collective, *args, group=None, **params):
        """Call a collective of torch; where it fails, raise what another process has told."""
        try:
            collective(*args, group=group or self._group, **params)
            return
        except RuntimeError as error:
            reason = str(error)
        # Outside of the handler: the traceback would keep the group, and its connections, alive.
        self._leave()
        raise self._failure(reason)

    def all(self, value):
        """Return the values of all processes, in a list."""
        values = [None] * self.count
        self.send(dist.all_gather_object, values, value)
        return values

    def first(self, value):
        """Return the value of the first process."""
        held = [value]
        self.send(dist.broadcast_object_list, held, src=0)
        return held[0]

    def check_same(self, told):
        """Raise, in every process, unless all are about to fit the same.

        Parameters
        ----------
        told : dict of str to object
            What tells a fit from others, by name.
        """
        every = self.all(told)
        names = dict.fromkeys(name for one in every for name in one)
        others = [n for n in names if any(one.get(n) != every[0].get(n) for one in every)]
        if others:
            raise ValueError(
                f"The {self.count} processes of the torch.distributed group differ in "
                f"{', '.join(others)}: each has to call the same method with the same parameters "
                "and all of X and y, not with a shard, as fit itself divides every batch among "
                "the processes. Seed what is drawn before, and sort the names of files."
            )


def _store():
    return dist.distributed_c10d._get_default_store()


def _timeout():
    """Return the timeout of the default group, which torch does not show."""
    world = dist.group.WORLD
    return world._get_backend(world._device_types[0]).options._timeout
