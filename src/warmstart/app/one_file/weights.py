"""The weights of a model as bytes: matrices as 8-bit integers with a scale for each row, the rest as it is.

    w (O, I)  ->  scale[o] = max |w[o]| / 127,  q = round(w / scale), so that |w - q scale| <= scale / 2

The float32 numbers come first (scales, vectors, small matrices), then the integers. All of it is deflated, which saves about a
tenth.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from warmstart.errors import BundleError

INT8_FROM = 4096
"""numbers in a matrix from which on it is stored as integers"""


def pack_tensors(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], bytes]:
    """Places of tensors, and the deflated bytes. Of ``[name, shape, start, scales]``, ``scales`` is null for float32 numbers.

    ``start`` counts float32 numbers from the beginning, or integers behind all of those.
    """
    floats, integers, places = list[Tensor](), list[Tensor](), list[list[Any]]()
    so_far = {"floats": 0, "integers": 0}

    def put(kind: str, where: list[Tensor], tensor: Tensor) -> int:
        where.append(tensor.flatten())
        start, so_far[kind] = so_far[kind], so_far[kind] + tensor.numel()
        return start

    for name, tensor in tensors.items():
        values = tensor.detach().float().cpu()
        if values.dim() != 2 or values.numel() < INT8_FROM:
            places.append([name, list(values.shape), put("floats", floats, values), None])
            continue
        quantised, scales = quantise_rows(values)
        scales_at = put("floats", floats, scales)
        places.append([name, list(values.shape), put("integers", integers, quantised), scales_at])
    parts = [torch.cat(floats).numpy().astype("<f4").tobytes(), *(part.numpy().tobytes() for part in integers)]
    packer = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    packed = b"".join([packer.compress(b"".join(parts)), packer.flush()])
    return {"tensors": places, "floats": so_far["floats"], "integers": so_far["integers"]}, packed


def quantise_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix (O, I) as int8 (O, I) and the scale (O,) of each row."""
    scales = (matrix.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    return (matrix / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales


def unpack_tensors(layout: Mapping[str, Any], packed: bytes) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Each tensor as it is computed with, and of a quantised one half a step of each row (O, 1), the most that it may be off.

    Raises ``BundleError`` if the bytes are not those of the layout.
    """
    try:
        size = 4 * int(layout["floats"]) + int(layout["integers"])
        unpacker = zlib.decompressobj()
        data = bytearray(unpacker.decompress(packed, size + 1))
        if len(data) != size:
            raise ValueError(f"{len(data):,} bytes instead of {size:,}")
        floats = torch.frombuffer(data, dtype=torch.float32, count=layout["floats"])
        integers = torch.frombuffer(data, dtype=torch.int8)[4 * layout["floats"] :]
        tensors: dict[str, tuple[Tensor, Tensor | None]] = {}
        for name, shape, start, scales_at in layout["tensors"]:
            count = int(torch.Size(shape).numel())
            if scales_at is None:
                tensors[name] = floats[start : start + count].view(shape), None
                continue
            scales = floats[scales_at : scales_at + shape[0]][:, None]
            tensors[name] = integers[start : start + count].view(shape) * scales, scales / 2
    except (zlib.error, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise BundleError(f"the weights in this page are damaged: {error}; export the model again") from None
    return tensors
