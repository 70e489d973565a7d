"""Estimate the memory of the tree of prefixes that the learner uses on a CPU (worker.policy.tree)."""

from backend.catalog.policies.forward_pass import ForwardPass
from backend.catalog.policies.model_shape import ModelShape, is_linear


def tree_layer(shape: ModelShape, run: ForwardPass) -> tuple[tuple[float, ...], float, float, float]:
    """Return the bytes of each layer, of the end, of a layer's input, and of the gradients of the scores.

    Rows are assumed to share only the nodes of their prompt.
    """
    prompts = run.rows / run.rows_per_prompt
    nodes = prompts * run.prompt_tokens + run.rows * (run.columns - run.prompt_tokens)
    head_width, gain_bytes = shape.head_width, 4 if run.trains_base else 0
    queries, keys = shape.heads * head_width, shape.kv_heads * head_width
    has_head_norm = any(".q_norm." in weight.name for weight in shape.layers[min(shape.layers)])
    layer_bytes = []
    for weights in shape.layers.values():
        linear = {weight.module_name: weight for weight in filter(is_linear, weights)}
        inner_size = linear["down_proj"].shape[1]
        per_node = (
            2 * (4 * shape.hidden + 4 + gain_bytes * shape.hidden) + 4 * 4 * inner_size + 4 * (queries + keys)
        )
        if has_head_norm:
            per_node += (shape.heads + shape.kv_heads) * (4 * head_width + 4 + gain_bytes * head_width)
        joined_bytes = 0
        if run.trains_base:
            per_node += 4 * (2 * shape.hidden + queries)
            joined_bytes = 4 * sum(
                weight.values
                for projection, weight in linear.items()
                if projection not in ("o_proj", "down_proj")
            )
        else:
            per_node += sum(4 * run.rank for weight in linear.values() if run.is_adapted(weight))
            per_node += 4 * (2 * shape.hidden + queries)
        row_bytes = 4 * (queries + 2 * keys) + 4 * shape.heads * run.columns
        layer_bytes.append(nodes * per_node + run.tokens * row_bytes + joined_bytes)
    end_bytes, score_bytes = (
        nodes * (8 + gain_bytes) * shape.hidden,
        4.0 * run.tokens * shape.heads * run.columns,
    )
    return tuple(layer_bytes), end_bytes, nodes * 4 * shape.hidden, score_bytes
