"""Published methods as values: what each changes against the defaults, whose it is, and what to watch.

A preset sets the objective and, where the method asks for it, updates per batch, group filters, length
handling, reward terms and prompt order. Batch sizes, learning rates and lengths come from the policy's
profile; the papers' own sizes stand in the note. The book's scripts also set what they sample and their
decay. Each family of methods has a file of its own.
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
"""Presets by what they have in common, in the order in which they are offered."""

PRESETS: dict[str, Preset] = {name: preset for family in FAMILIES.values() for name, preset in family.items()}
"""Every preset by the name that configs use."""
