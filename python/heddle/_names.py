"""Names that the program takes, of what users have in their hands: devices and data types."""

from __future__ import annotations

import sys
from typing import Any

from heddle.errors import InvalidArgument
from heddle.records import Device

# "cuda:0", "opencl:0" or "auto", one of Database.devices(), or a torch.device.
AnyDevice = Any


def device_id(device: AnyDevice) -> str:
    """The program's name of a device. PyTorch's "cuda" without a number is its current one, and its "cpu" OpenCL's
    first device, on which tensors in the processor's memory are computed."""
    if isinstance(device, Device):
        return device.id
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(device, torch.device):
        if device.type == "cuda":
            number = torch.cuda.current_device() if device.index is None and torch.cuda.is_available() else device.index
            return f"cuda:{number or 0}"
        if device.type == "cpu":
            return "opencl:0"
    elif isinstance(device, str):
        return f"{device}:0" if device in ("cuda", "opencl") else device
    raise InvalidArgument(
        f'device={device!r}: a device is "cuda:0", "opencl:0" or "auto", one of devices(), or a torch.device', 2
    )


def dtype_name(dtype: Any) -> str:
    """The program's name of a data type: torch.bfloat16 and numpy.float16 are meant as what they are called."""
    if isinstance(dtype, str):
        return dtype
    text = str(dtype).removeprefix("torch.")
    return dtype.__name__ if isinstance(dtype, type) else text
