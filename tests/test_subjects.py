"""Any model as a subject: where it comes from, what is found out, and one sentence for whatever is wrong with it."""

import dataclasses
import json
import warnings
from collections import namedtuple

import pytest
import safetensors.torch
import torch
from torch import nn

from saccade.data.images import Plain, Source
from saccade.spec import SaccadeError, Settings
from saccade.subjects import checkpoints, readout
from saccade.subjects.faster import faster
from saccade.subjects.find import Found, Wanted, find
from saccade.subjects.fit import fit, unpack

OF_TRANSFORMERS = pytest.mark.xdist_group("transformers")  # its import takes seconds; one process is enough
DATA = Source("photos", Settings(of="procedural_textures", hold_out=1000), 0)


@pytest.fixture(scope="module")
def images():
    return DATA("test").head(64)


def small(out=10, size=32, channels=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, out))


def fitted(model, images, **more):
    return fit(Found(model=model, name="mine", origin="a test"), images, **more)


# -- where it comes from

FILE = """
import torch
from torch import nn
from beside import WIDTH

class Net(nn.Module):
    def __init__(self, num_classes, width=WIDTH):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.body(x))

def net():
    return Net(10)

def broken():
    return Net(10, width="wide")

def needy(depth):
    return Net(10)

def text():
    return "no model"

def ends():
    raise SystemExit("no device")

ready = Net(10)
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "beside.py").write_text("WIDTH = 6\n")
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path / "mine.py"


@pytest.mark.parametrize("name", ["net", "Net", "ready"])
def test_a_function_a_class_or_a_module_of_a_file(file, name):
    found = find(f"{file}:{name}", Wanted(classes=10))
    assert found.model.head.out_features == 10 and found.model.head.in_features == 6


def test_arguments_reach_the_factory(file):
    assert find(f"{file}:Net", Wanted(classes=10, args={"width": 4})).model.head.in_features == 4


def test_a_factory_starts_from_the_same_weights_and_leaves_the_random_state_alone(file):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two = (find(f"{file}:net", Wanted()).model.head.weight for _ in range(2))
    assert torch.equal(one, two) and torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", r"broken raised an error.*line \d+: "),
        ("needy", "needs depth.*--set depth=VALUE"),
        ("text", "returned str, not a torch module"),
        ("ends", r"ends raised an error.*line \d+: SystemExit: no device"),
        ("nett", 'no function or class in .* "nett"; did you mean net'),
    ],
)
def test_what_can_be_wrong_with_a_factory(file, name, words):
    with pytest.raises(SaccadeError, match=words):
        find(f"{file}:{name}", Wanted())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def net(:\n", "line 1: "),
        ("import torch\n\nx = nothing\n", "line 3: NameError: name 'nothing'"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
    ],
)
def test_a_file_that_does_not_import_is_named_with_its_line(tmp_path, monkeypatch, text, words):
    (tmp_path / "bad.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    for name in (f"{tmp_path / 'bad.py'}:net", "bad.py:net", "./bad.py:net"):
        with pytest.raises(SaccadeError, match=words):
            find(name, Wanted())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vitt", "did you mean vit"),
        ("nothing.py:net", "no file nothing.py"),
        ("mine.py", "needs the name of a function"),
        ("timm:", "names no model"),
        ("weights.safetensors", "--factory"),
        pytest.param("hf:someone/something", "--download", marks=OF_TRANSFORMERS),
        ("abcdef", r"known: basic_cnn, .*\. A subject is"),
        ("weights.pkl", "no checkpoint by its name"),
    ],
)
def test_subjects_that_are_none(text, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.pkl").write_bytes(b"x")
    if text.startswith("hf:"):
        pytest.importorskip("transformers")
    with pytest.raises(SaccadeError, match=words):
        find(text, Wanted())


def test_a_registered_name_without_a_run_is_untrained_and_says_so(tmp_path):
    found = find("basic-cnn", Wanted(lab=str(tmp_path / "lab"), data=DATA))
    assert found.trained is False and "untrained" in found.notes[0]


@OF_TRANSFORMERS
def test_transformers_from_a_kind_and_from_a_folder(tmp_path, images):
    transformers = pytest.importorskip("transformers")
    small_vit = {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 16,
        "patch_size": 8, "num_labels": 10,
    }  # fmt: skip
    found = find("hf:vit", Wanted(args=small_vit))
    assert (found.size, found.channels, found.trained) == (16, 3, False)
    transformers.ViTConfig(**small_vit).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.1] * 3, "image_std": [0.2] * 3}))
    found = find(f"hf:{tmp_path}", Wanted())
    assert (found.size, found.mean, found.std) == (16, (0.1,) * 3, (0.2,) * 3)
    subject, facts = fit(found, images)
    assert facts.classes == 10 and subject.logits(images.batch(torch.arange(3))).shape == (3, 10)


# -- checkpoints


def test_a_checkpoint_in_its_factory(file, tmp_path):
    model = find(f"{file}:net", Wanted()).model
    with torch.no_grad():
        model.head.bias.fill_(7)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "w.safetensors")
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, tmp_path / "w.pt")
    for name in ("w.safetensors", "w.pt"):
        found = find(str(tmp_path / name), Wanted(factory=f"{file}:net"))
        assert found.trained and found.model.head.bias.tolist() == [7] * 10


def test_keys_that_do_not_fit_are_named_and_counted(tmp_path):
    model = small()
    state = {"1.weight": torch.zeros(10, 4), "2.bias": torch.zeros(3)}
    safetensors.torch.save_file(state, tmp_path / "w.safetensors")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(
        SaccadeError, match=r"1 of the model's 2 missing \(1.bias\); 1 unknown to the model \(2.bias\); 1 of another"
    ):
        checkpoints.load_into(model, tmp_path / "w.safetensors")
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_words_before_the_keys_are_left_out_or_put_there(tmp_path):
    state = small().state_dict()
    for before in ("module.", "model.", "_orig_mod.", "module.model.", "backbone."):
        safetensors.torch.save_file({before + k: v for k, v in state.items()}, tmp_path / "w.safetensors")
        model = small()
        checkpoints.load_into(model, tmp_path / "w.safetensors")
        assert torch.equal(model[1].weight, state["1.weight"])
    safetensors.torch.save_file(state, tmp_path / "w.safetensors")
    model = nn.Sequential(nn.DataParallel(small()))
    checkpoints.load_into(model, tmp_path / "w.safetensors")
    assert torch.equal(model[0].module[1].weight, state["1.weight"])


def test_a_state_inside_another_mapping_and_one_without_counters(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    state = {k: v + 1 for k, v in model.state_dict().items() if "tracked" not in k}
    torch.save({"epoch": 2, "model": {"state_dict": state}}, tmp_path / "w.pt")
    checkpoints.load_into(model, tmp_path / "w.pt")
    assert torch.equal(model[1].weight, state["1.weight"])


def _scripted(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch advises against programs of this kind
        torch.jit.save(torch.jit.script(small()), path)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: path.write_bytes(b""), "w.pt is empty"),
        (lambda path: path.write_text("<html>404</html>"), "is a text file .* not a checkpoint; fetch"),
        (
            lambda path: torch.save(small(), path),
            r"refused: .* \(it holds torch.nn.modules.container.Sequential",
        ),
        (_scripted, "TorchScript program, not weights"),
    ],
)
def test_files_that_are_no_checkpoints(tmp_path, write, words):
    write(tmp_path / "w.pt")
    with pytest.raises(SaccadeError, match=words) as error:
        checkpoints.read(tmp_path / "w.pt")
    assert "Re-running" not in str(error.value)


def test_half_a_checkpoint_is_called_damaged(tmp_path):
    torch.save(small().state_dict(), tmp_path / "w.pt")
    (tmp_path / "w.pt").write_bytes((tmp_path / "w.pt").read_bytes()[:5000])
    with pytest.raises(SaccadeError, match="is damaged: its end is missing"):
        checkpoints.read(tmp_path / "w.pt")


class Trap:
    def __reduce__(self):
        return (print, ("this ran",))


def test_a_pickle_with_more_than_tensors_is_refused_and_not_run(tmp_path, capsys):
    torch.save({"state_dict": {}, "x": Trap()}, tmp_path / "w.pt")
    with pytest.raises(SaccadeError, match="is refused: as a pickle it may run code"):
        checkpoints.read(tmp_path / "w.pt")
    assert "this ran" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_a_broken_safetensors_file(tmp_path, content):
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(SaccadeError, match="cannot be read as safetensors"):
        checkpoints.read(tmp_path / "w.safetensors")


def test_a_pickle_that_holds_a_number(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "w.pt")
    with pytest.raises(SaccadeError, match="holds no state_dict"):
        checkpoints.read(tmp_path / "w.pt")


# -- what is found out


@pytest.mark.parametrize(("size", "channels"), [(32, 3), (28, 1), (224, 3), (64, 3)])
def test_size_and_channels_are_found_out(images, size, channels):
    _, facts = fitted(small(size=size, channels=channels), images)
    assert (facts.size, facts.channels, facts.classes) == ((size, size), channels, 10)


def test_grey_images_for_a_colour_model():
    grey = Plain(torch.zeros(4, dtype=torch.long), 10, (0.1,), (0.3,), torch.zeros(4, 1, 32, 32, dtype=torch.uint8))
    subject, facts = fitted(nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), grey)
    assert facts.channels == 3 and subject.logits(grey.batch(torch.arange(4))).shape == (4, 4)


def test_channels_that_cannot_be_made_of_the_datas_are_one_sentence(images):
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    with pytest.raises(SaccadeError, match=r"takes 4 channels .* and the data have 3"):
        fitted(model, images)


def test_layers_that_are_built_by_the_first_image(images):
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(10))
    _, facts = fitted(model, images)
    assert facts.channels == 3 and facts.classes == 10 and facts.parameters == 4 * 27 + 4 + 40 + 10


def test_a_model_that_needs_more_than_one_image_is_reported(images):
    class OfBatch(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(3072, 10)

        def forward(self, x):
            return self.map(nn.functional.batch_norm(x.flatten(1), None, None, training=True))

    _, facts = fitted(OfBatch(), images)
    assert any("does not answer an image alone" in note for note in facts.notes)


def test_a_model_that_ends_the_process_gets_a_sentence(images):
    class Leaves(nn.Flatten):
        def forward(self, x):
            raise SystemExit(3)

    with pytest.raises(SaccadeError, match=r"fails on each of the .*SystemExit"):
        fitted(Leaves(), images)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_wrapped_and_scripted_models(images):
    for model in (nn.DataParallel(small()), torch.jit.trace(small(), torch.rand(2, 3, 32, 32))):
        _, facts = fitted(model, images)
        assert facts.classes == 10


def test_an_error_that_is_not_the_inputs_doing_is_told_as_such(images):
    class Needs(nn.Module):
        def forward(self, x, mask):
            return x

    with pytest.raises(SaccadeError, match=r"fails on each of the \d+ inputs .*'mask'\); its forward is called"):
        fitted(Needs(), images)


class Several(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.net, self.wrap = small(), wrap

    def forward(self, x):
        return self.wrap(x.mean((2, 3)), self.net(x))


Pair = namedtuple("Pair", ["embedded", "answer"])


@pytest.mark.parametrize(
    "wrap", [lambda f, z: (f, z), lambda f, z: {"embedded": f, "answer": z}, Pair], ids=["tuple", "mapping", "named"]
)
def test_logits_beside_features_are_known_by_the_number_of_classes(images, wrap):
    subject, facts = fitted(Several(wrap), images)
    x = images.batch(torch.arange(3))
    assert facts.classes == 10
    with torch.no_grad():
        torch.testing.assert_close(subject.logits(x), subject.model.model.net(subject.prepared(x)))


def test_a_size_that_nothing_fits_is_asked_for(images):
    with pytest.raises(SaccadeError, match=r"takes none of .* inputs tried .*--size PIXELS"):
        fitted(nn.Sequential(nn.Conv2d(3, 2, 1), small(size=17, channels=2)), images)
    model = nn.Sequential(nn.Conv2d(3, 2, 1), small(size=17, channels=2))
    assert fitted(model, images, size=17)[1].size == (17, 17)


class Wrapped(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.inner, self.wrap = small(), wrap

    def forward(self, x):
        return self.wrap(self.inner(x))


Pair = namedtuple("Pair", "extra out")


@dataclasses.dataclass
class Answer:
    loss: object
    logits: torch.Tensor


@pytest.mark.parametrize(
    "wrap",
    [
        lambda z: (z, torch.zeros(3)),
        lambda z: [None, z],
        lambda z: {"logits": z, "hidden": z[:, :3]},
        lambda z: {"anything": z},
        lambda z: Answer(None, z),
        lambda z: Pair(None, z),
        lambda z: z[:, :, None, None],
    ],
)
def test_plain_outputs_are_unpacked(images, wrap):
    model = Wrapped(wrap)
    subject, facts = fitted(model, images)
    x = images.batch(torch.arange(5))
    wanted = model.inner((x - torch.tensor(subject.mean)[:, None, None]) / torch.tensor(subject.std)[:, None, None])
    assert facts.classes == 10
    torch.testing.assert_close(subject.logits(x), wanted.detach())


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (lambda z: z[:1], "1 rows to 4 images"),
        (lambda z: z[:, :1], "one number per image"),
        (lambda z: z[:, 0], "one number per image"),
        (lambda z: z[:, :, None].expand(-1, -1, 7), "more than one row per image"),
        (lambda z: z.argmax(1), "not scores"),
        (lambda z: z * float("nan"), "answers NaN for 4 of 4"),
        (lambda z: {"a": z, "b": z}, "a mapping of a, b"),
        (lambda z: "yes", "answers with str"),
    ],
)
def test_outputs_that_are_no_answers_get_a_sentence(images, wrap, words):
    with pytest.raises(SaccadeError, match=words):
        fitted(Wrapped(wrap), images)


@pytest.mark.parametrize(
    ("last", "word"),
    [(nn.Identity(), "logits"), (nn.Softmax(1), "probabilities"), (nn.LogSoftmax(1), "log-probabilities")],
)
def test_the_kind_of_output_is_found_out_and_probabilities_are_made_logits(images, last, word):
    torch.manual_seed(0)
    body = small()
    subject, facts = fitted(nn.Sequential(body, last), images)
    plain, _ = fitted(body, images)
    x = images.batch(torch.arange(5))
    assert facts.output == word
    torch.testing.assert_close(subject.logits(x).softmax(1), plain.logits(x).softmax(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions(images, dtype):
    subject, facts = fitted(small().to(dtype), images)
    assert facts.precision == str(dtype).removeprefix("torch.")
    assert subject.logits(images.batch(torch.arange(3))).dtype in (torch.float32, torch.float64)


def test_every_module_has_its_own_mode_back(images):
    model = nn.Sequential(nn.Dropout(0.5), small()).train()
    model[0].eval()
    fitted(model, images)
    assert [m.training for m in model.modules()][:3] == [True, False, True]


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = small()

    def forward(self, x):
        return self.inner(x) + torch.randn(10)


def test_a_model_that_answers_differently_is_reported_with_by_how_much(images):
    _, facts = fitted(Noisy(), images)
    assert "non-deterministic" in facts.notes[0] and "of their spread" in facts.notes[0]


def test_a_model_whose_answers_depend_on_the_batch_is_reported(images):
    model = nn.Sequential(small(), nn.GroupNorm(1, 10), Shared())
    _, facts = fitted(model, images)
    assert "depends on the others in its batch" in facts.notes[0]


class Shared(nn.Module):
    def forward(self, x):
        return x + x.mean(0)


def labelled(n=64):
    """Images whose mean brightness is their class."""
    y = torch.arange(n) % 2
    x = torch.where(y == 1, 200, 60).byte()[:, None, None, None].expand(n, 3, 8, 8).contiguous()
    return Plain(y, 2, (0.3,) * 3, (0.2,) * 3, x)


class Threshold(nn.Module):
    """Right only on brightness as it is, which of the usual normalisations only `none` gives it."""

    def forward(self, x):
        z = x.mean((1, 2, 3))
        dark, light = ((z - level / 255).abs() < 0.05 for level in (60, 200))
        return torch.stack([dark.float(), light.float() + 0.1], 1)


def test_the_normalisation_is_searched_on_training_images_and_said():
    images = labelled()
    _, facts = fitted(Threshold(), images, tuning=images)
    assert facts.mean == (0.0,) and facts.how["normalisation"].startswith('"none", right on 100%')


def test_a_normalisation_as_given():
    _, facts = fitted(small(size=8, out=2), labelled(), normalise="0.1,0.1,0.1/0.5,0.5,0.5")
    assert facts.mean == (0.1,) * 3 and facts.how["normalisation"] == "as given"
    with pytest.raises(SaccadeError, match='no normalisation "imagnet"; did you mean imagenet'):
        fitted(small(size=8, out=2), labelled(), normalise="imagnet")


# -- reading


def test_classes_that_are_not_the_datas_are_read_by_agreement_and_it_is_said(images):
    subject, facts = fitted(small(out=1000), images)
    reading = readout.read(subject, facts, DATA, n=32)
    assert reading.way == "agreement" and "1000 classes" in reading.says
    answered = reading.data("test")
    assert len(answered) == 32 and bool(reading.subject.correct(answered).all())


def test_labels_are_refused_when_the_classes_are_not_the_datas(images):
    subject, facts = fitted(small(out=7), images)
    with pytest.raises(SaccadeError, match="answers with 7 classes and procedural_textures has 10"):
        readout.read(subject, facts, DATA, way="labels")


def test_a_class_map_adds_up_probabilities():
    class Fixed(nn.Module):
        def forward(self, x):
            return torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().expand(len(x), -1)

    mapped = readout.Mapped(Fixed(), readout.class_map({0: [0, 3], 2: 1}, 4, 3))
    torch.testing.assert_close(mapped(torch.zeros(2, 1)).exp()[0], torch.tensor([0.5, 0.0, 0.2]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({0: [9]}, "names 9"),
        ({5: [0], 6: [1]}, "names class 5"),
        ({0: [1]}, "at least two"),
        ("nothing.json", "no class map"),
    ],
)
def test_class_maps_that_cannot_be(given, words):
    with pytest.raises(SaccadeError, match=words):
        readout.class_map(given, 4, 3)


def test_the_built_in_map_names_every_class_once():
    groups = readout.class_map("imagenet_cifar10", 1000, 10)
    every = [c for g in groups for c in g]
    assert all(groups) and len(set(every)) == len(every)


def test_a_linear_read_out_learns_what_the_features_hold():
    images = labelled(200)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.Linear(5, 1000))
    subject, _ = fitted(model, images)
    read = readout.read_out(subject, images)
    assert bool(dataclasses.replace(subject, model=read, classes=2).correct(images).all())
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_features_without_classes_are_unpacked_for_a_read_out():
    path, out = unpack({"pooler_output": torch.zeros(4, 12)}, 4, "mine")
    assert path == (("key", "pooler_output"),) and out.shape == (4, 12)


# -- the same answers sooner


class Residual(nn.Module):
    """A convolution before its norm, one whose output is used twice, and one that is called twice."""

    def __init__(self):
        super().__init__()
        self.one, self.norm_one = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.two, self.norm_two = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4, affine=False)
        self.three, self.norm_three = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 32 * 32, 10)

    def forward(self, x):
        x = self.norm_one(self.one(x)).relu()
        y = self.two(x)
        y = self.norm_two(y) + 0.3 * y
        y = self.norm_three(self.three(y)) + self.three(x)
        return self.head(y.flatten(1))


def trained_norms(model):
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.uniform_(-1, 1)
                module.running_var.uniform_(0.5, 2)
    return model


def test_folded_norms_give_the_same_answers(images):
    torch.manual_seed(0)
    model = trained_norms(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(7200, 10))
    )
    subject, _ = fitted(model.eval(), images)
    quick = faster(subject, images)
    x = images.batch(torch.arange(32))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in quick.model.modules())
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == 1  # the user's model is as it was
    torch.testing.assert_close(quick.logits(x), subject.logits(x), atol=1e-4, rtol=1e-4)


def test_a_model_at_rest_is_not_switched_at_every_call(images):
    """Parts of our own making must not be the only ones in training mode: each call would switch all of them."""

    class Counted(nn.Sequential):
        switched = 0

        def train(self, mode=True):
            Counted.switched += 1
            return super().train(mode)

    net = Counted(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    subject, _ = fitted(net.eval(), images)
    quick = faster(subject, images)
    x, Counted.switched = images.batch(torch.arange(4)), 0
    subject.logits(x), quick.logits(x)
    assert Counted.switched == 0
    net[1].train()
    subject.logits(x)
    assert Counted.switched == 1 and net[1].training and not net.training


def test_a_rectifier_whose_input_is_used_again_does_not_write_over_it(images):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.rectify, self.head = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Linear(8, 10)

        def forward(self, x):
            x = self.conv(x)
            return self.head((self.rectify(x) + x).mean((2, 3)))

    subject, _ = fitted(Twice(), images)
    quick = faster(subject, images)
    x = images.batch(torch.arange(8))
    torch.testing.assert_close(quick.logits(x), subject.logits(x), rtol=0, atol=1e-4)
    assert not any(getattr(m, "inplace", False) for m in quick.model.modules())
    once, _ = fitted(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), images)
    assert any(getattr(m, "inplace", False) for m in faster(once, images).model.modules())
    assert not any(getattr(m, "inplace", False) for m in once.model.modules())  # the user's own model is not touched


def test_a_norm_that_cannot_be_folded_leaves_the_model_as_it_is(images):
    torch.manual_seed(0)
    subject, _ = fitted(trained_norms(Residual()).eval(), images)
    quick = faster(subject, images)
    x = images.batch(torch.arange(32))
    torch.testing.assert_close(quick.logits(x), subject.logits(x), atol=1e-4, rtol=1e-4)


def test_a_model_without_convolutions_is_not_copied(images):
    subject, _ = fitted(small(), images)
    assert faster(subject, images) is subject
