"""The papers' claims, measured with the estimators of this package.

An experiment is a configuration in `configs`: data, protocol, contenders with their search grids,
set sizes and seeds. `python -m benchmarks.papers run EXPERIMENT` tunes every contender with the
same number of configurations on validation data, then measures the chosen ones on test data.
Each fit is one line in ``benchmarks/results/papers/EXPERIMENT.jsonl``; a killed run continues
where it was. `python -m benchmarks.papers report` writes ``benchmarks/papers.md`` and its pictures
from the lines, and compresses the files of whole experiments.
"""
