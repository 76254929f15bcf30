"""Where samples lie while a network reads them."""

import torch

#: Share of the free memory of an accelerator that samples may take.
DEVICE_SHARE = 0.3


def fits_on(device, n_bytes):
    """Return whether samples of so many bytes may lie on a device; only CUDA can be asked."""
    if torch.device(device).type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    # What torch holds back for later is free for it.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return n_bytes <= DEVICE_SHARE * free


def moved(x, device):
    """Return a batch on a device; one on the processor is complete when this returns."""
    # An accelerator computes after its copies, in any case.
    return x.to(device, non_blocking=torch.device(device).type != "cpu")
