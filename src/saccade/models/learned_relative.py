"""Attention by learned codes of row and column shifts, with or without content; Cordonnier, Loukas, Jaggi 2020."""

from __future__ import annotations

from torch import nn

from saccade.arguments import Chance, Depth, Width
from saccade.layers.content_attention import ContentAttention
from saccade.layers.passes import switches
from saccade.layers.position_attention import LearnedPositionAttention
from saccade.models.shells import Attention, Shell, encoder, grid
from saccade.registry import model
from saccade.spec import SaccadeError


@model(family="attention", dial="dim")
def learned_relative(
    classes: int = 10,
    *,
    content: bool = True,
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
    key_content: bool = True,
    value_maps: bool = False,
    transposed_content: bool = False,
    channels: Width = 3,
) -> nn.Module:
    """Transformer with learned relative positions, and content unless content=False; 29 484 282 parameters.

    hierarchical is shared and frozen_keys at once. key_content=False: queries meet positions only. value_maps: each
    head has a value map of its own in front of the shared output map, as the reproduction's 16-head models have.
    Dropout as in quadratic. transposed_content is a slip of the reproduction's code: content is compared at mirrored
    pixels.
    """
    size = grid(patch, dim)
    if transposed_content and not content:
        raise SaccadeError("transposed_content needs content=True; positions alone are not compared at pixels.")
    if not key_content and not content:
        raise SaccadeError("key_content=False is a kind of content; set content=True with it, or leave it out.")
    one, frozen = switches(hierarchical, shared, frozen_keys, content=content and key_content)
    original = shell == "original"

    def make(own_keys: bool) -> Attention:
        if not content:
            return LearnedPositionAttention(
                dim,
                heads,
                dim,
                size=size,
                width=dim,
                dropout=attention_dropout,
                bias=not original,
                value_maps=value_maps,
            )
        keys = "none" if not key_content else "own" if own_keys else "given"
        return ContentAttention(
            dim,
            heads,
            dim,
            size=size,
            bias=original,
            dropout=attention_dropout,
            keys=keys,
            transposed=transposed_content,
            value_maps=value_maps,
        )

    return encoder(
        classes,
        make,
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
