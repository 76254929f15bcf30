"""A generator that a loss can own: by device, picklable, restartable."""

import numbers

import torch


def _draw_seed(generator):
    """Return `generator` if it is a seed, else a seed drawn from it."""
    if isinstance(generator, numbers.Integral) and not isinstance(generator, bool):
        return int(generator)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, an int or None, got {generator!r}.")
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**62, (), generator=generator, device=device))


class LossGenerator:
    """Random numbers of one loss, apart from torch's default generators.

    Generators are made per device at first use, from one seed; their states are pickled.

    Parameters
    ----------
    generator : torch.Generator or int, optional
        Source of the seed, or the seed; torch's default generator when absent.
    """

    def __init__(self, generator=None):
        self.seed = _draw_seed(generator)
        self._generators = {}
        self._states = {}

    def on(self, device, fixed=False):
        """Return the generator for tensors on `device`, or None on the meta device.

        With `fixed` it is a fresh one, which starts at the seed.
        """
        if device.type == "meta":
            return None
        if fixed:
            return torch.Generator(device).manual_seed(self.seed)
        key = str(device)
        if key not in self._generators:
            generator = torch.Generator(device).manual_seed(self.seed)
            if key in self._states:
                generator.set_state(self._states.pop(key))
            self._generators[key] = generator
        return self._generators[key]

    def __getstate__(self):
        states = {key: generator.get_state() for key, generator in self._generators.items()}
        return {"seed": self.seed, "_generators": {}, "_states": {**self._states, **states}}
