"""Attention of any model: maps found, rows sum to one, the output's bits unchanged, nothing left behind."""

import contextlib
import importlib
import warnings

import numpy as np
import pytest
import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F

import saccade as sc
from saccade import models
from saccade.spec import SaccadeError
from saccade.subjects.attention import capture, token_grid

DIM, HEADS, PATCH, SIZE = 32, 4, 8, 32


def library(name):
    """Skipped where it cannot be imported: torchvision's binaries may not fit torch, which is a RuntimeError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} cannot be imported: {str(error).splitlines()[0]}")


def scores(q, k):
    return q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5


def join(x):
    return rearrange(x, "b h n d -> b n (h d)")


def by_matmul(q, k, v):
    return join(F.dropout(scores(q, k).softmax(-1), 0.1, training=False) @ v)


def by_fused(q, k, v):
    return join(F.scaled_dot_product_attention(q, k, v))


def by_einsum(q, k, v):
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).mul(q.shape[-1] ** -0.5).softmax(-1)
    return join(torch.einsum("bhqk,bhkd->bhqd", weights, v))


def by_einsum_heads_last(q, k, v):
    weights = torch.einsum("bhqd,bhkd->bqkh", q, k).mul(q.shape[-1] ** -0.5).softmax(2)
    return rearrange(torch.einsum("bqkh,bhkd->bqhd", weights, v), "b n h d -> b n (h d)")


def by_bmm(q, k, v):
    flat = [t.reshape(-1, *t.shape[2:]) for t in (q, k, v)]
    weights = torch.softmax(torch.bmm(flat[0], flat[1].transpose(1, 2)) * q.shape[-1] ** -0.5, -1)
    return join(torch.bmm(weights, flat[2]).view(v.shape))


def by_exponentials(q, k, v):
    e = (scores(q, k) - scores(q, k).amax(-1, keepdim=True)).exp()
    return join((e / e.sum(-1, keepdim=True)) @ v)


def by_columns(q, k, v):
    weights = scores(k, q).softmax(-2)
    return join((v.mT @ weights).mT)


def by_loop(q, k, v):
    return torch.cat([scores(q[:, i], k[:, i]).softmax(-1) @ v[:, i] for i in range(HEADS)], -1)


def by_weighted_sum(q, k, v):
    weights = (q[:, :, :, None] * k[:, :, None]).sum(-1).mul(q.shape[-1] ** -0.5).softmax(-1)
    return join((weights[..., None] * v[:, :, None]).sum(-2))


def by_mixed_heads(q, k, v):
    """Talking heads: after the mix rows no longer sum to one, so the softmax before it is what is found."""
    mix = torch.linspace(-1, 1, HEADS * HEADS).view(HEADS, HEADS)
    return join(torch.einsum("gh,bhqk->bgqk", mix, scores(q, k).softmax(-1)) @ v)


STYLES = [
    by_matmul, by_fused, by_einsum, by_einsum_heads_last, by_bmm, by_exponentials, by_columns, by_loop,
    by_weighted_sum, by_mixed_heads,
]  # fmt: skip


class Handmade(nn.Module):
    """Sixteen patches and a class token, one attention layer written in the given style."""

    def __init__(self, attend, classes=10):
        super().__init__()
        self.attend = attend
        self.patch, self.qkv = nn.Conv2d(3, DIM, PATCH, PATCH), nn.Linear(DIM, 3 * DIM)
        self.start, self.head = nn.Parameter(torch.randn(1, 1, DIM)), nn.Linear(DIM, classes)

    def tokens(self, x):
        patches = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.start.expand(len(x), -1, -1), patches], 1)

    def parts(self, x):
        return [rearrange(t, "b n (h d) -> b h n d", h=HEADS) for t in self.qkv(self.tokens(x)).chunk(3, -1)]

    def forward(self, x):
        return self.head((self.tokens(x) + self.attend(*self.parts(x)))[:, 0])


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return make()


@pytest.fixture(scope="module")
def x():
    return torch.rand(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def bits_before_and_inside(model, x, pick=lambda out: out):
    model.eval()
    with torch.no_grad():
        before = pick(model(x))
    seen = capture(model, x)
    with torch.no_grad():
        after = pick(model(x))
    assert torch.equal(before, pick(seen.output)) and torch.equal(before, after)
    return seen


def check_rows(seen):
    assert seen.layers
    for layer in seen.layers:
        assert bool((layer.weights >= 0).all())
        assert float((layer.weights.sum(-1) - 1).abs().max()) < 1e-4


@pytest.mark.parametrize("attend", STYLES, ids=lambda f: f.__name__)
def test_handwritten_attention_is_found_as_it_is(attend, x):
    model = seeded(lambda: Handmade(attend))
    seen = bits_before_and_inside(model, x)
    check_rows(seen)
    (layer,) = seen.layers
    assert (layer.grid, layer.prefix, layer.query_grid, layer.query_prefix) == ((4, 4), 1, (4, 4), 1)
    with torch.no_grad():
        q, k, _ = model.parts(x)
        torch.testing.assert_close(layer.weights[:, 0], scores(q, k).softmax(-1), rtol=0, atol=1e-6)


class Library(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.patch, self.body, self.head = nn.Conv2d(3, DIM, PATCH, PATCH), body, nn.Linear(DIM, 10)

    def forward(self, x):
        return self.head(self.body(self.patch(x).flatten(2).transpose(1, 2)).mean(1))


class Multihead(nn.Module):
    def __init__(self, need_weights):
        super().__init__()
        self.layer, self.need_weights = nn.MultiheadAttention(DIM, HEADS, batch_first=True), need_weights

    def forward(self, x):
        return self.layer(x, x, x, need_weights=self.need_weights)[0]


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_on_its_fast_path_is_found(need_weights, x):
    model = seeded(lambda: Library(Multihead(need_weights)))
    seen = bits_before_and_inside(model, x)
    check_rows(seen)
    with torch.no_grad():
        tokens = model.patch(x).flatten(2).transpose(1, 2)
        wanted = model.body.layer(tokens, tokens, tokens, average_attn_weights=False)[1]
    torch.testing.assert_close(seen.layers[0].weights[:, 0], wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_encoders_fast_path_gives_the_maps_of_its_slow_path(norm_first, x):
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 64, batch_first=True, norm_first=norm_first)
    model = seeded(lambda: Library(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)))
    seen = bits_before_and_inside(model, x)
    check_rows(seen)
    assert [one.name for one in seen.layers] == ["body.layers.0", "body.layers.1"]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        slow = capture(model, x)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    for fast, other in zip(seen.layers, slow.layers, strict=True):
        torch.testing.assert_close(fast.weights, other.weights, rtol=0, atol=1e-5)


def test_masked_and_causal_attention_is_found(x):
    lower = torch.ones(17, 17, dtype=torch.bool).tril()
    wanted = None
    for attend in (
        lambda q, k, v: join(F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        lambda q, k, v: join(F.scaled_dot_product_attention(q, k, v, attn_mask=lower)),
    ):
        (layer,) = bits_before_and_inside(seeded(lambda a=attend: Handmade(a)), x).layers
        assert float(layer.weights[..., ~lower].abs().max()) == 0
        wanted = layer.weights if wanted is None else wanted
        torch.testing.assert_close(layer.weights, wanted, rtol=0, atol=1e-6)


SMALL = {
    "hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 64,
    "image_size": SIZE, "patch_size": PATCH, "num_labels": 10,
}  # fmt: skip


OF_TRANSFORMERS = pytest.mark.xdist_group("transformers")  # its import takes seconds; one process is enough


def transformers_model(kind, **config):
    hf = library("transformers")
    return seeded(lambda: getattr(hf, f"{kind}ForImageClassification")(getattr(hf, f"{kind}Config")(**config)))


@OF_TRANSFORMERS
@pytest.mark.parametrize("how", ["eager", "sdpa"])
@pytest.mark.parametrize(("kind", "prefix"), [("ViT", 1), ("DeiT", 2)])
def test_transformers_vit_and_deit(kind, prefix, how, x):
    model = transformers_model(kind, attn_implementation=how, **SMALL)
    seen = bits_before_and_inside(model, x, lambda out: out.logits)
    check_rows(seen)
    assert [(one.heads, one.grid, one.prefix) for one in seen.layers] == [(HEADS, (4, 4), prefix)] * 2


@OF_TRANSFORMERS
@pytest.mark.parametrize("how", ["eager", "sdpa"])
def test_transformers_swin_has_windows_and_shifts(how, x):
    model = transformers_model(
        "Swin", image_size=SIZE, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
        num_labels=10, attn_implementation=how,
    )  # fmt: skip
    seen = bits_before_and_inside(model, x, lambda out: out.logits)
    check_rows(seen)
    told = [(one.windows, one.heads, one.grid, one.shift) for one in seen.layers]
    assert told == [
        (16, 2, (4, 4), (0, 0)),
        (16, 2, (4, 4), (-2, -2)),
        (4, 4, (4, 4), (0, 0)),
        (4, 4, (4, 4), (-2, -2)),
    ]


@OF_TRANSFORMERS
def test_transformers_convnext_has_none(x):
    model = transformers_model("ConvNext", depths=[1] * 4, hidden_sizes=[8] * 4, num_labels=10)
    assert bits_before_and_inside(model, x, lambda out: out.logits).layers == ()


@pytest.mark.parametrize("fused", [True, False])
def test_timm_vit(fused, x):
    timm = library("timm")
    model = seeded(
        lambda: timm.create_model(
            "vit_tiny_patch16_224", img_size=SIZE, patch_size=PATCH, depth=2, num_classes=10, reg_tokens=4
        )
    )
    for block in model.blocks:
        block.attn.fused_attn = fused
    seen = bits_before_and_inside(model, x)
    check_rows(seen)
    assert [(one.heads, one.grid, one.prefix) for one in seen.layers] == [(3, (4, 4), 5)] * 2


def test_vit_pytorch(x):
    library("vit_pytorch")
    from vit_pytorch import SimpleViT

    model = seeded(
        lambda: SimpleViT(
            image_size=SIZE, patch_size=PATCH, num_classes=10, dim=DIM, depth=2, heads=HEADS, mlp_dim=64, dim_head=8
        )
    )
    seen = bits_before_and_inside(model, x)
    check_rows(seen)
    assert [(one.heads, one.grid, one.prefix) for one in seen.layers] == [(HEADS, (4, 4), 0)] * 2


def state(model):
    """Everything that capturing could leave behind."""
    kept = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = [len(getattr(m, name)) for m in model.modules() for name in kept]
    return hooks, [m.training for m in model.modules()], [sorted(vars(m)) for m in model.modules()]


def test_nothing_is_left_on_the_model_or_in_torch(x):
    from torch.nn.modules import module as everywhere

    model = seeded(lambda: Library(nn.TransformerEncoderLayer(DIM, HEADS, 64, batch_first=True))).train()
    model.head.eval()  # a part that was put into another mode keeps it
    before = state(model), len(everywhere._global_forward_hooks), len(everywhere._global_forward_pre_hooks)
    capture(model, x)
    after = state(model), len(everywhere._global_forward_hooks), len(everywhere._global_forward_pre_hooks)
    assert before == after


def test_nothing_is_left_when_the_model_raises(x):
    model = seeded(lambda: Handmade(by_matmul))
    before = state(model)
    with contextlib.suppress(RuntimeError):
        capture(model, x[:, :2])
    assert state(model) == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_a_compiled_model_is_looked_at_as_it_is_written(x):
    model = seeded(lambda: Handmade(by_matmul))
    (layer,) = capture(torch.compile(model), x).layers
    (plain,) = capture(model, x).layers
    assert torch.equal(layer.weights, plain.weights)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kind", ["script", "trace"])
def test_a_program_without_hooks_has_its_layers(kind, x):
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 64, batch_first=True)
    model = seeded(lambda: Library(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))).eval()
    made = torch.jit.script(model) if kind == "script" else torch.jit.trace(model, x, check_trace=False)
    seen, plain = capture(made, x), capture(model, x)
    assert [one.heads for one in seen.layers] == [HEADS, HEADS]
    for one, other in zip(seen.layers, plain.layers, strict=True):
        torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_a_compiled_model_keeps_the_names_of_its_layers():
    model = seeded(lambda: Library(nn.TransformerEncoderLayer(DIM, HEADS, 64, batch_first=True)))
    image = np.zeros((32, 32, 3), np.uint8)
    one, other = sc.attention(torch.compile(model, backend="eager"), image), sc.attention(model, image)
    assert repr(one) == repr(other) and [a.name for a in one.layers] == [a.name for a in other.layers]


def test_a_gate_over_branches_and_a_table_look_up_are_no_attention(x):
    class Gates(nn.Module):
        def forward(self, x):
            weights = x.mean((2, 3))[..., None].expand(-1, -1, 2).softmax(2)  # two branches
            table = F.one_hot(torch.arange(8) % 4, 4).float().expand(2, 8, 4)
            return (weights * x.flatten(2)[..., :2]).sum((1, 2)) + torch.bmm(table, torch.ones(2, 4, 3)).sum((1, 2))

    assert capture(Gates(), x).layers == ()


@pytest.mark.parametrize("name", ["mha_lenet", "basic_vit"])
def test_attention_inside_a_kernel_speaks_for_itself(name, x):
    seen = bits_before_and_inside(models.build(name, seed=0), x)
    check_rows(seen)


def test_grids():
    assert token_grid(17, (32, 32)) == (1, (4, 4))
    assert token_grid(18, (32, 64)) == (0, (3, 6))
    assert token_grid(32, (32, 32)) is None  # 25 + 7 is a coincidence
    assert token_grid(21, (32, 32), said=[(4, 4)]) == (5, (4, 4))


# -- what users call


@pytest.mark.parametrize("registers", [3, 5, 8])
def test_a_patch_convolution_says_the_grid_behind_registers(registers, x):
    """More tokens before the grid than may be guessed: the first convolution cuts the image into that many patches."""
    model = Handmade(by_fused)
    model.start = nn.Parameter(torch.randn(1, registers, DIM))
    (layer,) = capture(model, x).layers
    side = x.shape[-1] // PATCH
    assert (layer.prefix, layer.grid) == (registers, (side, side))
    model.patch.padding = (1, 1)  # its patches are no longer those of the image
    assert capture(model, F.interpolate(x, x.shape[-1] + 1)).layers[0].grid is None


def test_attention_of_an_image(tmp_path):
    model = seeded(lambda: Handmade(by_fused))
    image = np.random.default_rng(0).integers(0, 256, (48, 40, 3), dtype=np.uint8)
    seen = sc.attention(model, image)
    assert seen.facts.size == (40, 40)  # the middle square; this model takes any multiple of its patch
    assert seen.map(0, 1).shape == (5, 5)
    assert abs(seen.map(0).sum() - 1) < 1e-6
    assert seen.save(tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert seen._repr_png_().startswith(b"\x89PNG")
    assert "<img" in seen._repr_html_() and "5 x 5 after 1 token" in seen._repr_html_()


def test_the_map_of_a_cell_is_its_row():
    model = seeded(lambda: Handmade(by_fused))
    seen = sc.attention(model, np.zeros((32, 32, 3), np.uint8))
    row = seen.layers[0].weights[0, 0, 2, 1 + 4 * 1 + 3, 1:]
    np.testing.assert_allclose(seen.map(0, 2, query=(1, 3)).flatten(), (row / row.sum()).numpy(), rtol=1e-6)


def test_a_model_without_attention_is_named():
    with pytest.raises(SaccadeError, match="has no attention"):
        sc.attention(models.build("lenet", seed=0), np.zeros((32, 32, 3), np.uint8))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda seen: seen.map(3), "1 layers with attention"),
        (lambda seen: seen.map(0, 9), "heads 0 to 3"),
        (lambda seen: seen.map(0, 0, query=40), "queries 0 to 16"),
        (lambda seen: seen.map(0, 0, query=(4, 0)), "no cell"),
        (lambda seen: seen.save("x.bmp"), "figure format"),
    ],
)
def test_wrong_questions_get_a_sentence(ask, words):
    seen = sc.attention(seeded(lambda: Handmade(by_fused)), np.zeros((32, 32, 3), np.uint8))
    with pytest.raises(SaccadeError, match=words):
        ask(seen)
