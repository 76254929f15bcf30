"""A document and tensors as the bytes of one file, and back.

The tensors are stored as safetensors, the document as JSON in the header, with a checksum of both.
"""

import hashlib
import json
import struct

import safetensors.torch
import torch
from safetensors import SafetensorError

#: Raised by one whenever files change.
FORMAT = 2
#: Bounds on what is parsed before anything else is known of a file: bytes of the header, its
#: tensors, and the memory of what it says, from the signs that begin a value.
MAX_HEADER = 16_000_000
MAX_TENSORS = 20_000
BYTES_PER_VALUE = 80
FREE_BYTES = 20_000_000
#: What safetensors raises on types that torch does not know.
UNKNOWN_TYPE_ERRORS = (KeyError, TypeError, RuntimeError)


def pack(document, tensors):
    """Return the bytes of a file.

    Parameters
    ----------
    document : dict
        JSON.
    tensors : dict of str to Tensor
    """
    content = json.dumps({"format": FORMAT, **document}, allow_nan=False, sort_keys=True)
    tensors = {k: t.detach().cpu().contiguous().clone() for k, t in tensors.items()}
    header = {"sksetvalued": content, "sha256": _checksum(content, tensors)}
    data = safetensors.torch.save(tensors, metadata=header)
    _check_size(memoryview(data)[8 : 8 + struct.unpack_from("<Q", data)[0]], len(tensors))
    return data


def unpack(data):
    """Return the document of a file, without the format, and its tensors.

    Parameters
    ----------
    data : bytes

    Raises
    ------
    ValueError
        Bytes that :func:`pack` did not write, of another format, truncated or changed.
    """
    try:
        header = _header(data)
        tensors = safetensors.torch.load(data)
    except (SafetensorError, struct.error, RecursionError, *UNKNOWN_TYPE_ERRORS) as error:
        raise ValueError(f"is not a complete file of sksetvalued.save: {error}") from error
    # Copies that are aligned as torch would have them.
    tensors = {name: tensors.pop(name).clone() for name in list(tensors)}
    document = _checked_document(header, tensors)
    del document["format"]
    return document, tensors


def _header(data):
    if len(data) < 8:
        raise struct.error("it is truncated" if data else "it is empty")
    (size,) = struct.unpack_from("<Q", data)
    if size > len(data) - 8:
        raise struct.error("it is truncated, or a file of another library, as of joblib or skops")
    text = data[8 : 8 + size]
    _check_size(text)
    try:
        header = json.loads(text)
    except ValueError as error:
        raise struct.error(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise struct.error("its header is not an object")
    if len(header) > MAX_TENSORS:
        raise ValueError(f"holds {len(header)} tensors, more than {MAX_TENSORS}")
    metadata = header.get("__metadata__")
    return metadata if isinstance(metadata, dict) else {}


def _check_size(text, n_tensors=0):
    """Raise if what the header says would take far more memory than the header."""
    text = bytes(text)
    n_values = text.count(b",") + text.count(b"[") + text.count(b"{")
    allowed = FREE_BYTES + 2 * len(text)
    if len(text) > MAX_HEADER or n_values * BYTES_PER_VALUE > allowed or n_tensors > MAX_TENSORS:
        raise ValueError(
            f"has a header of {len(text)} bytes with {n_values} values, more than the "
            f"{MAX_HEADER} bytes and {allowed // BYTES_PER_VALUE} values of any model. A long "
            "history can be shortened, as by `del model.history_[:-10]`"
        )


def _checked_document(header, tensors):
    """Return the document, once the format is known and the checksum agrees."""
    content = header.get("sksetvalued")
    if not isinstance(content, str) or not content.isascii():
        raise ValueError("was not written by sksetvalued.save")
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"was not written by sksetvalued.save: {error}") from error
    version = document.get("format") if isinstance(document, dict) else None
    if type(version) is not int:
        raise ValueError(f"was not written by sksetvalued.save: its format is {version!r:.50}")
    if version != FORMAT:
        remedy = "update sksetvalued" if version > FORMAT else "save the model again"
        raise ValueError(
            f"has format {version}, written by sksetvalued {_writer(document)}; this version "
            f"reads format {FORMAT}: {remedy}"
        )
    if header.get("sha256") != _checksum(content, tensors):
        raise ValueError(
            "is damaged or was changed since it was written: its checksum does not agree. Save "
            "the model again"
        )
    return document


def _writer(document):
    versions = document.get("versions")
    writer = versions.get("sksetvalued") if isinstance(versions, dict) else None
    return f"{writer:.20}" if isinstance(writer, str) else "of an unknown version"


def _refuse_constant(text):
    raise ValueError(f"{text} is no JSON")


def _checksum(content, tensors):
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
