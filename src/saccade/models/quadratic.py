"""Attention by Gaussians around learned shifts, after Cordonnier, Loukas, Jaggi (ICLR 2020), "quadratic encoding"."""

from __future__ import annotations

from torch import nn

from saccade.arguments import Chance, Depth, Width
from saccade.layers.passes import switches
from saccade.layers.position_attention import QuadraticAttention
from saccade.models.shells import Shell, encoder, grid
from saccade.registry import model


@model(family="attention", dial="dim")
def quadratic(
    classes: int = 10,
    *,
    isotropic: bool = True,
    heads: Width = 9,
    dim: Width = 400,
    depth: Depth = 6,
    shell: Shell = "original",
    hierarchical: bool = False,
    shared: bool = False,
    frozen_keys: bool = False,
    patch: Width = 2,
    hidden: Width = 512,
    dropout: Chance | None = None,
    attention_dropout: Chance = 0.0,
    additive_centre: bool = False,
    channels: Width = 3,
) -> nn.Module:
    """Transformer whose heads look at a Gaussian around a learned shift; 12 086 844 parameters.

    Isotropic heads separate over rows and columns and are computed so, exactly, unless attention_dropout (.1 in the
    paper) acts on the full map. dropout None is the shell's own: .1, or none in the reproduction. hierarchical: all
    passes share one block; there are no keys to freeze. additive_centre is a slip of the reproduction's code.
    """
    grid(patch, dim)
    one, frozen = switches(hierarchical, shared, frozen_keys, content=False)
    return encoder(
        classes,
        lambda own: QuadraticAttention(
            dim, heads, dim, isotropic=isotropic, dropout=attention_dropout, additive_centre=additive_centre
        ),
        dim=dim,
        depth=depth,
        shell=shell,
        patch=patch,
        hidden=hidden,
        dropout=dropout,
        channels=channels,
        shared=one,
        frozen_keys=frozen,
    )
