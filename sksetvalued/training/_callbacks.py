"""Callbacks of the training loop: the best epoch, the progress bar, the learning rate."""

import copy

from skorch.callbacks import Callback, LRScheduler
from torch.optim.lr_scheduler import OneCycleLR

from ._net import StopTraining


class BestEpoch(Callback):
    """Keep the weights of the epoch with the best score, and stop when it no longer improves.

    Parameters
    ----------
    monitor : str
        Name of a column of the history; the larger the better, except for "valid_loss".
    patience : int, optional
        Number of epochs without improvement after which training stops.
    """

    def __init__(self, monitor, patience=None):
        self.monitor = monitor
        self.patience = patience

    def on_train_begin(self, net, **kwargs):
        self.best_ = None
        self.best_epoch_ = None
        self.state_ = None

    def on_epoch_end(self, net, **kwargs):
        value = net.history[-1, self.monitor]
        value = -value if self.monitor == "valid_loss" else value
        epoch = net.history[-1, "epoch"]
        if self.best_ is None or value > self.best_:
            self.best_, self.best_epoch_ = value, epoch
            self.state_ = copy.deepcopy(net.module_.state_dict())
        elif self.patience is not None and epoch - self.best_epoch_ >= self.patience:
            raise StopTraining

    def on_train_end(self, net, **kwargs):
        if self.state_ is not None:
            net.module_.load_state_dict(self.state_)
        self.state_ = None


class EpochProgress(Callback):
    """Show a progress bar over the epochs, with the losses and the monitored metric."""

    def __init__(self, total, monitor=None):
        self.total = total
        self.monitor = monitor

    def on_train_begin(self, net, **kwargs):
        from tqdm.auto import tqdm

        self.bar_ = tqdm(total=self.total, unit="epoch")

    def on_epoch_end(self, net, **kwargs):
        row = net.history[-1]
        shown = [k for k in ("train_loss", "valid_loss", self.monitor) if k in row]
        self.bar_.set_postfix({k: f"{row[k]:.4g}" for k in shown}, refresh=False)
        self.bar_.update()

    def on_train_end(self, net, **kwargs):
        self.bar_.close()
        del self.bar_


class _Schedule(LRScheduler):
    """Forget torch's scheduler after training, as it holds the optimizer and its state."""

    def on_train_end(self, net, **kwargs):
        self.lr_scheduler_ = None


class _FromOptimizer:
    """Let a user's function of the optimizer stand where skorch expects a scheduler class."""

    def __init__(self, function):
        self.function = function

    def __call__(self, optimizer, **kwargs):
        return self.function(optimizer)


def lr_scheduler(lr_schedule, max_epochs, n_batches, lr):
    """Return the skorch callback of a learning-rate schedule, which starts with each training.

    Parameters
    ----------
    lr_schedule : "cosine", "one_cycle", sequence of int, dict or callable
        The last three are epochs at which the rate is divided by ten, the arguments of torch's
        ``MultiStepLR``, and a function from the optimizer to a torch scheduler.
    max_epochs, n_batches : int
    lr : float
    """
    anew = {"last_epoch": -1}
    if lr_schedule == "cosine":
        return _Schedule("CosineAnnealingLR", T_max=max_epochs, **anew)
    if lr_schedule == "one_cycle":
        n_steps = max_epochs * n_batches + 1
        return _Schedule(OneCycleLR, step_every="batch", max_lr=lr, total_steps=n_steps, **anew)
    if callable(lr_schedule):
        return _Schedule(_FromOptimizer(lr_schedule))
    if isinstance(lr_schedule, dict):
        return _Schedule("MultiStepLR", **(anew | lr_schedule))
    if isinstance(lr_schedule, (list, tuple)):
        return _Schedule("MultiStepLR", milestones=list(lr_schedule), gamma=0.1, **anew)
    raise ValueError(
        "lr_schedule must be None, 'cosine', 'one_cycle', a sequence of epochs, a dict of "
        f"MultiStepLR's arguments or a function of the optimizer, got {lr_schedule!r}."
    )
