"""A forward pass whose memory is estimated."""

from collections.abc import Callable
from dataclasses import dataclass

from backend.catalog.policies.weight_files import Weight


@dataclass(frozen=True)
class Pass:
    """A forward pass over rows of one length."""

    rows: int
    columns: int
    """Tokens of each row, padding included."""
    value_bytes: int
    """Bytes of the policy's precision."""
    adapter_bytes: int = 0
    """Bytes of the adapter's precision; 0: no adapter, every weight trains."""
    rank: int = 0
    is_adapted: Callable[[Weight], bool] = lambda _: False
    adapts_experts: bool = False
    on_cpu: bool = False
    rows_per_prompt: int = 1
    """Rows that begin with the same prompt."""
    prompt_tokens: int = 0
    is_packed: bool = False
    """Whether all rows are concatenated into one."""
    keeps_expanded: bool = False
    """Whether autograd keeps the base's linear weights in the policy's precision, as it does under int8."""
    by_rows: bool = False
    """Whether the tree of prefixes is not walked."""

    @property
    def visible_tokens(self) -> int:
        """Tokens that a mask or scores hold for each token."""
        return self.tokens if self.is_packed else self.columns

    @property
    def tokens(self) -> int:
        """N."""
        return self.rows * self.columns

    @property
    def trains_base(self) -> bool:
        """Whether the policy's own weights get gradients."""
        return not self.adapter_bytes
