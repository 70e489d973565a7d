"""The text part of a model that also reads images or sounds: what trains, and what stays frozen beside it."""

from torch import nn

from backend.catalog.policies.text_model import is_beside_text


def freeze_beside_text(model: nn.Module) -> None:
    """Freeze what reads images and sounds, in place: no text has a gradient for it."""
    for name, weight in model.named_parameters():
        if is_beside_text(name):
            weight.requires_grad_(False)
