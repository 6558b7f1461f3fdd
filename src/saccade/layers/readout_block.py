"""The last transformer block when only the class token is read: one query instead of all of them. Exact.

Nothing of the other tokens' queries, output projections or MLPs reaches the class token's output, and
q_0 . (W_k x + b_k) = (W_k^T q_0) . x + const, where the constant cancels in the softmax. So keys and values of all
tokens are never formed: 16 times fewer operations in a one-layer model.
"""

from __future__ import annotations

import torch
from einops import einsum, rearrange
from torch import Tensor


def class_token_attention(x: Tensor, qkv_weight: Tensor, qkv_bias: Tensor, heads: int) -> Tensor:
    """Self-attention of token 0 over tokens x (n, t, d), before the output projection: (n, d).

    `qkv_weight` (3d, d) and `qkv_bias` (3d) stack the projections to q, k, v, heads side by side.
    """
    wq, wk, wv = qkv_weight.chunk(3)
    bq, _, bv = qkv_bias.chunk(3)
    q = rearrange(torch.addmm(bq, x[:, 0], wq.T), "n (h w) -> n h w", h=heads)
    wk, wv = (rearrange(w, "(h w) d -> h w d", h=heads) for w in (wk, wv))
    asked = einsum(q * q.shape[-1] ** -0.5, wk, "n h w, h w d -> n h d")
    p = torch.softmax(asked @ x.transpose(1, 2), dim=-1)
    seen = einsum(p @ x, wv, "n h d, h w d -> n h w")
    return rearrange(seen, "n h w -> n (h w)") + bv
