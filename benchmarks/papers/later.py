"""Losses proposed after the papers, and the package's mixture, under the papers' protocol."""

from .experiment import Contender, Experiment

#: Two values of a parameter of its own for each loss, and two learning rates.
OWN = {
    "noised_hinge": {"epsilon": [0.3, 1.0]},
    "smoothed_hinge": {"loss_params": [{"tau": 0.3}, {"tau": 1.0}]},
    "noised_mixture": {"cross_entropy": [0.5, 0.8]},
    "mixed_top_k": {"loss_params": [{"tau": 0.5}, {"tau": 1.0}]},
    "lapsum": {"loss_params": [{"tau": 0.5}, {"tau": 2.0}]},
    "dftopk": {"loss_params": [{"tau": 0.3}, {"tau": 1.0}]},
}
#: The cross-entropy has no such parameter: four learning rates.
CONTENDERS = {
    "cross_entropy": Contender(
        {"loss": "cross_entropy"}, {"lr": [1e-3, 3e-3, 1e-2, 3e-2]}, uses_k=False
    ),
    **{name: Contender({"loss": name}, {"lr": [3e-3, 1e-2]} | own) for name, own in OWN.items()},
}


def later(title, data, ks, grid, seeds, rules=("top_k",), **params):
    """Return an experiment whose differences have simultaneous intervals."""
    return Experiment(
        title=f"Losses since then: {title}",
        data=data,
        estimator="top_k",
        contenders=CONTENDERS,
        ks=ks,
        grid=grid,
        budget=4 * max(map(len, grid.values())),
        rules=rules,
        tuning_seeds=(100,),
        simultaneous=True,
        seeds=seeds,
        **params,
    )


LATER = {
    "later_banking77": later(
        "BANKING77, 10 texts per class",
        {"name": "banking77", "per_class": 10, "n_val": 20},
        (3, 5),
        {"max_epochs": [10, 25], "batch_size": [32]},
        seeds=tuple(range(6)),
    ),
    "later_table": later(
        "a made-up table of 40 ambiguous classes, 800 samples",
        {"name": "synthetic", "n_samples": 1600, "n_classes": 40},
        (3,),
        {"max_epochs": [15], "batch_size": [32]},
        seeds=tuple(range(16)),
    ),
    "later_tail_banking77": later(
        "a long tail imposed on BANKING77, from 150 texts of a class to 4",
        {"name": "banking77", "imbalance": 37.5, "largest": 150, "n_val": 20},
        (3,),
        {"max_epochs": [12], "batch_size": [64]},
        seeds=tuple(range(6)),
        rules=("top_k_macro", "top_k"),
        average="macro",
    ),
    "later_omniglot": later(
        "labels redrawn within groups of five characters, p = 0.4: three alphabets of Omniglot",
        {"name": "omniglot", "noise": 0.4, "n_alphabets": 3},
        (5,),
        {"max_epochs": [20], "batch_size": [32]},
        seeds=tuple(range(10)),
        fixed={"backbone_params": {"widths": [16, 32, 64]}},
    ),
}
