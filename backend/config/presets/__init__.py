"""Presets of published methods, with the settings that they change and their sources.

A preset sets the objective and, if the method requires it, updates per batch, group filters, length handling,
reward terms and prompt order. Batch sizes, learning rates and lengths come from the profile of the policy,
and the note of a preset names those of the paper. The presets of the book's scripts also set sampling and
weight decay. Each family of methods has a separate module.
"""

from backend.config.presets.book import BOOK
from backend.config.presets.classics import CLASSICS
from backend.config.presets.critics import CRITICS
from backend.config.presets.grpo import GRPO
from backend.config.presets.preset import Preset
from backend.config.presets.sequence import SEQUENCE
from backend.config.presets.systems import SYSTEMS

__all__ = ["FAMILIES", "PRESETS", "Preset"]

FAMILIES: dict[str, dict[str, Preset]] = {
    "GRPO and its relatives": GRPO,
    "One ratio per completion": SEQUENCE,
    "Whole training recipes": SYSTEMS,
    "Policy gradients before GRPO": CLASSICS,
    "With a critic": CRITICS,
    "The book's scripts": BOOK,
}
"""Presets by family, in the order in which they are offered."""

PRESETS: dict[str, Preset] = {name: preset for family in FAMILIES.values() for name, preset in family.items()}
"""All presets by name."""
