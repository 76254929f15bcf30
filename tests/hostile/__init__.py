"""Odd data in great numbers: every case is right, or refused by the name of an argument.

A case is a function of a source of random numbers. `test_hostile.py` gives it those of
hypothesis, which shrinks what fails; `python -m hostile` gives it many seeds.
"""
