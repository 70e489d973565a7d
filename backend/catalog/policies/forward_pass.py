"""The parameters of a forward pass that determine its memory."""

from collections.abc import Callable
from dataclasses import dataclass

from backend.catalog.policies.weight_files import Weight


@dataclass(frozen=True)
class ForwardPass:
    """A forward pass over rows of equal length."""

    rows: int
    columns: int
    """Number of tokens in each row, including padding."""
    value_bytes: int
    """Bytes per value of the policy."""
    adapter_bytes: int = 0
    """Bytes per value of the adapter, or 0 if there is no adapter and all weights are trained."""
    rank: int = 0
    is_adapted: Callable[[Weight], bool] = lambda _: False
    adapts_experts: bool = False
    on_cpu: bool = False
    rows_per_prompt: int = 1
    """Number of rows that begin with the same prompt."""
    prompt_tokens: int = 0
    is_packed: bool = False
    """Whether all rows are concatenated into one."""
    keeps_expanded: bool = False
    """Whether autograd keeps dequantised copies of the base's linear weights, as with int8."""
    by_rows: bool = False
    """Whether rows are never processed as a tree of prefixes."""

    @property
    def visible_tokens(self) -> int:
        """Number of columns of the attention mask and scores, for each token."""
        return self.tokens if self.is_packed else self.columns

    @property
    def tokens(self) -> int:
        """Total number of tokens."""
        return self.rows * self.columns

    @property
    def trains_base(self) -> bool:
        """Whether the weights of the policy itself get gradients."""
        return not self.adapter_bytes
