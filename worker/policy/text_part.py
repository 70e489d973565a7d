"""Freeze the parts of a multimodal model that do not process text."""

from torch import nn

from backend.catalog.policies.text_model import is_outside_text_model


def freeze_beside_text(model: nn.Module) -> None:
    """Freeze the modules for images and audio in place, because text gives them no gradient."""
    for name, weight in model.named_parameters():
        if is_outside_text_model(name):
            weight.requires_grad_(False)
