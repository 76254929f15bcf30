"""Backbones that the user gives: modules, and functions that return one."""

import copy
import inspect
import os
import weakref

import torch
from torch import nn

from .._weights import load_weights
from ._base import Source

#: Parts with weights to train of the modules that functions have returned.
GIVEN = weakref.WeakSet()


class Own(Source):
    """Whatever has no name."""

    takes_parts = True

    def owns(self, backbone):
        return not isinstance(backbone, str)

    def build(self, backbone, params, weights, form, generator):
        if isinstance(backbone, nn.Module):
            if params:
                raise ValueError(
                    f"backbone_params={params!r} cannot be applied to a module that is built "
                    "already; give a callable instead."
                )
            body = _copied(backbone)
        elif callable(backbone):
            body = called(backbone, form, params, backbone)
            _check_new(body)
        else:
            raise TypeError(
                "backbone must be None, a tuple of widths, a name, an nn.Module or a callable "
                f"(input_shape) -> nn.Module, got {backbone!r}."
            )
        if weights is not None:
            load_file(body, weights)
        return body


def _copied(backbone):
    """Return a copy of a module of the user, who keeps the module itself."""
    try:
        with torch.no_grad():  # or the copies of scripts would depend on the originals
            body = copy.deepcopy(backbone)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"backbone={type(backbone).__name__} cannot be copied for the training: {error}. "
            "Give a callable (input_shape) -> nn.Module that makes it."
        ) from error
    for own, given in zip(body.parameters(), backbone.parameters(), strict=True):
        own.requires_grad = given.requires_grad
    return body


def _check_new(body):
    """Raise if a function returned a module that it has returned to another network before."""
    parts = [part for part in body.modules() if _trains_itself(part)]
    for part in parts:
        if part in GIVEN:
            raise ValueError(
                f"backbone returned a module around a {type(part).__name__} that another network "
                "has from it, and may have trained: return a new one from each call, such as "
                "copy.deepcopy of yours, or give the module itself, which is copied."
            )
    GIVEN.update(parts)


def _trains_itself(part):
    return any(parameter.requires_grad for parameter in part.parameters(recurse=False))


def called(builder, form, params, backbone, own=None):
    """Return the module that a function makes for samples of a form.

    Parameters
    ----------
    builder : callable
    form : tuple of int or dict
    params : dict
        Arguments that the user gave.
    backbone : object
        What the function is to the user, for messages.
    own : dict, optional
        Arguments that are not the user's.
    """
    own = own or {}
    _check_params(builder, params, backbone, own)
    try:
        module = builder(form, **params, **own)
    except Exception as error:
        if isinstance(backbone, type):
            raise TypeError(
                f"backbone={builder.__name__} is a class, called with input_shape={form} "
                f"as its first argument, and raised {type(error).__name__}: {error}. Pass an "
                f"object, {builder.__name__}(...), or a callable (input_shape) -> nn.Module."
            ) from error
        error.add_note(f"raised by backbone={backbone!r}, called with input_shape={form}")
        raise
    if not isinstance(module, nn.Module):
        raise TypeError(f"backbone={backbone!r} must return an nn.Module, got {module!r}.")
    return module


def _check_params(builder, params, backbone, own):
    try:
        signature = inspect.signature(builder)
    except ValueError as error:  # a class or function of C
        raise TypeError(
            f"backbone={backbone!r} cannot be called with the shape of a sample: {error}. Give a "
            "module, or a callable (input_shape, **backbone_params) -> nn.Module."
        ) from error
    known = {k: p for k, p in signature.parameters.items() if k not in own}
    unknown = sorted(set(params) - set(list(known)[1:]))
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        raise ValueError(
            f"backbone_params has unknown keys {unknown} for backbone={backbone!r}; it accepts "
            f"{list(known)[1:]}."
        )
    try:
        signature.bind(None, **params)
    except TypeError as error:
        raise TypeError(
            f"backbone={backbone!r} cannot be called with the shape of a sample and "
            f"backbone_params={params!r}: {error}. Give a module that is built, such as "
            "nn.Linear(64, 32), or a callable (input_shape, **backbone_params) -> nn.Module."
        ) from error


def load_file(body, weights):
    """Load a file of the user into a module; `weights` cannot be a name here."""
    if not isinstance(weights, os.PathLike) and not os.path.isfile(weights):
        raise ValueError(
            f"weights={weights!r} must be the path of a state dict: only the models of "
            "torchvision, timm and Hugging Face have weights with names."
        )
    load_weights(body, weights)
