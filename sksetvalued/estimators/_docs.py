"""Signature and docstring of the training parameters, written once."""

import functools
import inspect

TRAINING_PARAMETERS = """\
backbone : None, tuple of int, str, nn.Module or callable, default=None
    What turns a sample into features. None is a small convolutional network for images, and for
    tables a perceptron with two hidden layers of 256 units, beside which the columns go to the
    last layer too, or with one where the columns are many or words: 250 columns or more, or those
    of a sparse matrix (less than 30 % of it not zero) without quantities (columns that vary, and
    are not zero in 90 % of the rows or more); a tuple gives the hidden widths; a name is "mlp",
    "convnet", "densenet40_40", a classification model of torchvision, "timm/NAME", "hf/TYPE" for a
    type of model of transformers or, with its weights, "hf/REPOSITORY"; a callable takes the shape
    of a sample and returns a new module. A module that is given itself is copied.
    The perceptron standardises the columns of a table by the training data, after it has bent
    what lies far from the median in units of the quartiles (positive columns of many orders are
    taken about as their logarithms), takes the cosines of up to 500 columns beside them, and
    makes all smaller where they are many (of sparse columns it scales the stored values);
    `partial_fit` takes the statistics of its first piece.
backbone_params : dict, default=None
    Arguments of a named or callable backbone; of "hf/" the values of its configuration, and
    ``"pooling"``: "mean" (the default), "cls", "last", "max" or "pooler". Perceptrons on tables
    and the small convolutional network are trained with ``{"dropout": 0.3}`` unless it says
    otherwise, perceptrons on other columns than words with less where there are many samples for
    each: at most 40 n_features / n_samples.
    ``{"hidden": (64,)}`` are other widths of a perceptron.
weights : str or path, default=None
    Name of torchvision weights; "pretrained", the weights that a name of timm or Hugging Face
    stands for; or path of a state dict of the backbone (of "hf/" also of a folder).
normalization : None, "imagenet" or pair (mean, std), default=None
    How images are scaled, after bytes are divided by 255. None is as the named weights were
    trained with, and by the channels of the training images without such weights.
transform : callable or dict, default=None
    Applied to each image; a dict has the keys "train" and "eval". When the evaluation transform
    returns several views of an image, predictions combine them.
max_epochs : int or "auto", default="auto"
    Passes over the training data. "auto" lets their number follow the data where the network is a
    perceptron on a table and the schedule "averaged" or None: a fifth of each class (or
    `validation_fraction`) is held out until the likelihood of its labels, at the temperature that
    suits them best and in the mean of two epochs, has not improved for long (for 500 batches at
    least while it is that of the shares of the classes), 80 epochs at most, fewer where these have
    more than 125 batches, down to 10; then a new network is trained on all samples for the best
    number of epochs. Where samples have several labels, it is a fifth of the samples, and the
    micro-F1 of the sets, or, while that is no better than one set for all, of as many labels as
    the training samples have. The small convolutional network takes 16 epochs, more where these
    are fewer than 1,250 batches, models of Hugging Face with their weights 5, other networks 50.
lr : float or "auto", default="auto"
    Learning rate, the initial one if there is a schedule, the largest one of "one_cycle". "auto"
    is 4e-3 for perceptrons on tables, 1e-2 for the small convolutional network, 5e-5 for models
    of Hugging Face with their weights and 3e-3 for others.
batch_size : int or "auto", default="auto"
    "auto" makes about 32 batches an epoch, of 32 to 256 samples, and of at most 64 for the small
    convolutional network. For perceptrons on other columns than words it makes 16 batches of 32
    to 512 samples. A few more go into each where few would be left over for the last.
optimizer : {"adamw", "adam", "sgd"} or class, default="adamw"
    "sgd" has Nesterov momentum 0.9. Arguments go to `net_params`, as ``optimizer__momentum``.
weight_decay : float or None, default=None
    Weight decay of the optimizer. None is, with "adamw", 0.1 for tables, 0.01 for the small
    convolutional network and for models of Hugging Face with their weights, and 0.2 for others
    on images; otherwise the optimizer's own default.
lr_schedule : None, str, sequence of int, dict or callable, default="auto"
    "averaged" is a constant rate after a warm-up of 50 updates, with averaged weights, which
    are as good after any epoch as those of a falling rate after the last; a rate that a
    callback sets meanwhile stays. "cosine" and "one_cycle" are those of torch. "auto" is
    "averaged" for perceptrons on tables, "one_cycle" for the small convolutional network and
    models of Hugging Face with their weights, "cosine" for others. A sequence holds the epochs,
    as integers, after which the rate is divided by ten; a dict, the arguments of torch's
    ``MultiStepLR``; a callable maps the optimizer to a torch scheduler, which steps after each
    epoch. An ``LRScheduler`` among the callbacks takes the place of "auto"; with
    ``step_every="batch"`` it steps after each batch, accumulated or not.
validation_fraction : float in (0, 1), default=None
    Share of each class held out to monitor the training; the best epoch is kept, of equal ones
    the last. A class of one sample is trained on. Where `max_epochs` is found, it is the share
    held out for that, unless the first of several folds (`calibration_folds`) is.
monitor : str or callable, default="auto"
    What to select the epoch by: "auto" is the metric that matches the estimator, "valid_loss"
    the loss; a function ``(y_true, y_score) -> float`` gets class indices (the indicator of the
    labels where samples have several) and the scores of the classes, larger is better.
patience : int, default=None
    Epochs without improvement after which training stops.
callbacks : list, default=None
    skorch callbacks, or pairs of a name and one, copied before use; what cannot be copied, such
    as the writer of TensorBoard, is shared. ``EpochScoring`` scores the estimator as it is after
    an epoch, on the validation set.
device : str, default="auto"
    "auto" is CUDA where there is one.
precision : {"float32", "bf16"}, default="float32"
    "bf16" runs the network under autocast. Losses, and the last layer when it predicts, compute in
    single precision: rounded scores of many classes would be equal.
compile : bool, default=False
    Compile the network with ``torch.compile``.
warm_start : bool, default=False
    Whether a second `fit` continues from the first: with its network, its held-out samples and
    the state of its optimizer, but with the loss, the learning rate and other training parameters
    of now. `backbone`, `backbone_params`, `weights` and `normalization` have no effect then.
    Weights that a callback froze stay frozen until one, as skorch's `Unfreezer`, frees them; its
    `at` counts the epochs of one `fit`, but all of `partial_fit`.
random_state : int, RandomState or None, default=None
    Seed of splits, initial weights, batches, dropout and noise. An int makes fits reproducible.
verbose : int, default=0
    0 is quiet, 1 shows a progress bar with the monitored metric.
net_params : dict, default=None
    Arguments of the skorch net: ``optimizer__*``, ``callbacks__*``, ``compile__*``, of the
    iterators what concerns loading, such as ``iterator_train__num_workers``, and
    ``gradient_accumulation_steps``, the number of batches whose gradients make one update.\
"""

FITTED_ATTRIBUTES = """\
classes_ : ndarray of shape (n_classes,)
    The class labels: sorted, or in the order of the columns of an indicator.
class_counts_ : ndarray of shape (n_classes,)
    Number of training samples (sum of their weights) of each class.
n_features_in_ : int
    Number of features, for tables.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Names of the features, for tables whose columns have string names.
input_kind_ : {"table", "image", "path", "dataset", "named"}
    What samples are.
input_shape_ : tuple of int, or dict
    Shape of a sample as the network takes it; of named parts, the form of each.
batch_size_ : int
    Samples of a batch of the training.
device_ : str
    The device of the network.
net_ : skorch.NeuralNet
    The trained net; the torch module is ``net_.module_``.
history_ : skorch.History
    Losses and metrics by epoch.
n_iter_ : int
    Number of epochs trained, counting a last one that was only partly run.
instruction_set_ : str or None
    Instructions of the compiled kernels in the fit: they fix the bits of the noise.\
"""


def _spelled_out(cls):
    """Return a constructor that ends in ``**training`` with the parameters of its base to show.

    scikit-learn, `help` and notebooks read them from the signature.
    """
    init = cls.__init__
    parameters = dict(inspect.signature(init).parameters)
    del parameters["training"]
    parameters |= inspect.signature(super(cls, cls).__init__).parameters

    @functools.wraps(init)
    def spelled_out(self, *args, **params):
        for name in params.keys() - parameters.keys():
            raise TypeError(
                f"{cls.__name__} got an unexpected keyword argument {name!r}; its parameters are "
                f"{list(parameters)[1:]}."
            )
        init(self, *args, **params)

    spelled_out.__signature__ = inspect.Signature(parameters.values())
    return spelled_out


def with_training_parameters(cls):
    """Put the shared parameters into the signature of an estimator, and into its docstring."""
    cls.__init__ = _spelled_out(cls)
    doc = inspect.cleandoc(cls.__doc__).replace("{training}", TRAINING_PARAMETERS)
    cls.__doc__ = doc.replace("{fitted}", FITTED_ATTRIBUTES)
    return cls
