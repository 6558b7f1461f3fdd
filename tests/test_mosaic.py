"""Mosaics and small objects: what is shown where, balance, nesting, the report's route, one sentence for bad input."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from saccade import registry, rng
from saccade.data import autoaugment, backdrops
from saccade.data.backdrops import textures
from saccade.data.fetch import photographs, sets
from saccade.data.mosaic import draw, mosaic
from saccade.data.points import sized
from saccade.data.small_object import small_object
from saccade.spec import SaccadeError

OF = {"seed": 0, "of": "procedural_textures"}


def _known(tile, x):
    return bool((x.flatten(1) == tile.flatten()).all(1).any())


def test_tiles_are_images_of_four_classes_in_order():
    x, y = sized("procedural_textures", "test", "bilinear")
    made = mosaic("test", n=40, **OF)
    assert made.x.shape == (40, 3, 64, 64) and made.shown.shape == (40, 4)
    assert torch.equal(made.y, made.shown[:, 0])
    assert made.present.shape == (40, 10) and (made.present.sum(1) == 4).all()
    for i in range(0, 40, 8):
        for place, (top, left) in enumerate(((0, 0), (0, 32), (32, 0), (32, 32))):
            tile = made.x[i, :, top : top + 32, left : left + 32]
            assert _known(tile, x[y == made.shown[i, place]])


def test_rejection_keeps_the_first_of_each_class():
    y = torch.tensor([0, 0, 0, 1, 2, 3])
    kept = draw(y, 300, 0, "test")
    drawn = torch.randint(6, (300, 64), generator=rng.stream(0, "mosaic", "test", 0))
    for row, numbers in zip(kept.tolist(), drawn.tolist(), strict=True):
        seen = {}
        for number in numbers:
            seen.setdefault(int(y[number]), number)
        assert row == list(seen.values())[:4]
    assert (y[kept[:, 0]] == 0).float().mean() > 0.4  # a class with half of the images comes first half of the time


def test_any_n_the_same_for_a_seed_and_nested():
    few, many, other = mosaic("test", n=3, **OF), mosaic("test", n=60, **OF), mosaic("test", n=3, seed=1, of=OF["of"])
    assert torch.equal(few.x, many.x[:3]) and not torch.equal(few.x, other.x)
    assert torch.equal(many.pick(torch.tensor([2, 1])).present, many.present[[2, 1]])


def test_sizes_keep_an_object_at_half_of_the_side():
    made = mosaic("test", n=4, size=64, **OF)
    index = torch.arange(4)
    assert torch.equal(made.batch(index), made.x.float() / 255)
    small = mosaic("test", n=4, size=32, **OF).batch(index)
    assert small.shape == (4, 3, 32, 32)
    tile = torch.nn.functional.avg_pool2d(made.batch(index), 2)
    assert (small - tile).abs().mean() < 0.06  # each tile is where it was, at half its size
    cut = mosaic("test", n=4, size=56, crop="centre", **OF).batch(index)
    assert torch.equal(cut, made.batch(index)[..., 4:60, 4:60])


def test_grey_sets_give_grey_mosaics():
    assert mosaic("train", n=2, seed=0, of="procedural_digits").x.shape == (2, 1, 64, 64)


def test_the_reports_route_changes_pixels_and_not_what_is_shown():
    clean, lossy = (mosaic("test", n=30, size=64, route=r, **OF) for r in ("clean", "report"))
    assert torch.equal(clean.shown, lossy.shown)
    assert (clean.x != lossy.x).flatten(1).any(1).all()
    assert torch.equal(lossy.x, mosaic("test", n=30, route="report", **OF).x)  # AutoAugment is seeded too


def test_policy_operations_do_what_they_are_called():
    x = torch.arange(32 * 32, dtype=torch.int64).remainder(251).byte().view(1, 32, 32).repeat(3, 1, 1)
    image = autoaugment.as_image(x)
    assert torch.equal(autoaugment.as_tensor(image), x)

    def done(name, strength, sign=1):
        return autoaugment.as_tensor(autoaugment.operate(image, name, strength, sign))

    assert torch.equal(done("invert", 0), 255 - x)
    assert torch.equal(done("right", 9)[:, :, :18], x[:, :, 14:])  # int(150 / 331 * 32) = 14
    assert torch.equal(done("down", 9, -1)[:, 14:], x[:, :18])
    assert torch.equal(done("posterize", 7), x & 0b11111000)
    assert torch.equal(done("solarize", 9), 255 - x)
    assert torch.equal(done("color", 0), x)
    assert torch.equal(done("rotate", 0), x)
    assert not torch.equal(done("shear_down", 8), x)
    assert len(autoaugment.POLICY) == 25
    drawn = autoaugment.autoaugmented(x[None].repeat(400, 1, 1, 1), rng.stream(0, "policy"))
    # A pair leaves an image as it is with the product of what its two operations are not done with.
    kept = np.mean([(1 - a[1]) * (1 - b[1]) for a, b in autoaugment.POLICY])
    assert abs((drawn == x).flatten(1).all(1).float().mean() - kept) < 0.1


@pytest.mark.parametrize("scale", [0.25, 0.5, 1.0])
def test_objects_are_pasted_unscaled_where_it_says(scale):
    made = small_object("test", n=30, scale=scale, size=round(32 / scale), **OF)
    assert made.canvas == round(32 / scale) and made.scale == scale
    seen = made.batch(torch.arange(30)).mul(255).round().byte()
    where = torch.cat([made.place, made.corner], 1).tolist()
    for picture, thing, which, (top, left, down, right) in zip(seen, made.objects, made.which, where, strict=True):
        assert torch.equal(picture[:, top : top + 32, left : left + 32], thing)
        behind = made.behind.images[which][:, down : down + made.canvas, right : right + made.canvas].clone()
        behind[:, top : top + 32, left : left + 32] = thing
        assert torch.equal(picture, behind)


def test_small_objects_are_balanced_crossed_and_placed_uniformly():
    made = small_object("test", n=2000, **OF)
    assert torch.bincount(made.y).tolist() == [200] * 10
    met = torch.zeros(10, 20).index_put((made.y, made.which), torch.ones(2000), accumulate=True)
    assert (met == 10).all()  # every class on every image, as in the report
    assert made.place.min() == 0 and made.place.max() == 95
    assert abs(made.place.float().mean() - 47.5) < 2
    more = small_object("test", n=2600, **OF)  # more than the set has
    assert torch.equal(more.objects[:2000], made.objects) and torch.equal(more.place[:2000], made.place)
    assert torch.bincount(more.y).tolist() == [260] * 10


def test_places_are_paired_over_scales():
    small, large = (small_object("test", n=50, scale=s, **OF) for s in (0.25, 0.5))
    assert torch.equal(small.objects, large.objects)
    assert (small.place / 96 - large.place / 32).abs().max() < 1 / 32 + 1e-6


def test_a_plain_backdrop_is_the_mean_colour():
    made = small_object("test", n=2, backdrop="plain", size=128, **OF)
    x = made.batch(torch.arange(2))
    rim = x[0, :, 127]  # objects never reach the last row
    assert (rim - torch.tensor(made.mean)[:, None]).abs().max() < 0.5 / 255 + 1e-6


def test_drawn_backdrops_differ_and_stay_the_same():
    found = textures(64)
    assert len(found.names) == len(set(found.names)) == 20
    flat = torch.stack(found.images).flatten(1)
    assert len(flat.unique(dim=0)) == 20
    assert torch.equal(flat, torch.stack(textures.__wrapped__(64).images).flatten(1))


def test_a_folder_of_images(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (130, 200, 3), np.uint8)
    Image.fromarray(x).save(tmp_path / "b.png")
    Image.fromarray(x[::-1]).save(tmp_path / "a.JPG")
    (tmp_path / "notes.txt").write_text("not an image")
    made = small_object("test", n=20, backdrop=str(tmp_path), size=128, route="report", **OF)
    assert made.behind.names == ("a.JPG", "b.png")
    assert torch.equal(made.behind.images[1], torch.from_numpy(x).permute(2, 0, 1))
    assert (made.corner >= 0).all() and (made.corner[:, 0] < 2).all() and (made.corner[:, 1] < 72).all()
    assert made.batch(torch.arange(20)).shape == (20, 3, 128, 128)
    with pytest.raises(SaccadeError, match=r"a\.JPG has 200x130 pixels, fewer than the crop of 256x256"):
        small_object("test", n=2, scale=0.125, backdrop=str(tmp_path), **OF)
    (tmp_path / "c.png").write_bytes(b"not an image either")
    backdrops.folder.cache_clear()
    with pytest.raises(SaccadeError, match=r"c\.png cannot be read as an image"):
        small_object("test", n=2, backdrop=str(tmp_path), **OF)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SaccadeError, match="no PNG or JPEG file"):
        small_object("test", n=2, backdrop=str(tmp_path / "empty"), **OF)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("mosaic", {"only": (1, 2, 3)}, "needs images of 4 different classes, and there are only 3"),
        ("mosaic", {"n": 0}, "n of mosaic must be a whole number from 1"),
        ("mosaic", {"route": "reprot"}, "did you mean report"),
        ("mosaic", {"crop": "center"}, "did you mean centre"),
        ("mosaic", {"of": "cifr10"}, "did you mean cifar10"),
        ("small_object", {"scale": 0}, "scale of small_object must be a number from"),
        ("small_object", {"scale": 1.5}, "to 1, not 1.5"),
        ("small_object", {"backdrop": "procedural_texture"}, "did you mean procedural_textures"),
        ("small_object", {"backdrop": "./nowhere"}, "no folder ./nowhere"),
        ("small_object", {"split": "held_out"}, 'split of small_object must be one of train, test, not "held_out"'),
    ],
)
def test_one_sentence_for_bad_input(name, change, says):
    args = {"split": "test", **OF, **change}
    with pytest.raises(SaccadeError, match=says):
        registry.find("data", name)(args.pop("split"), **args)


def test_fetched_images_are_checked_kept_with_their_authors_and_used(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    given = tmp_path / "given"
    given.mkdir()
    made = []
    for i in range(2):
        file = given / f"p{i}.jpg"
        Image.fromarray(np.full((300, 3300, 3), 100 * i, np.uint8)).save(file)
        made.append(photographs.Picture(file.name, f"author {i}", "CC0-1.0", "mine", sets.sha256_of_file(file)))
    monkeypatch.setattr(photographs, "PICTURES", tuple(made))
    monkeypatch.setattr(photographs, "FOLDERS", {"mine": "nowhere/at/all"})
    backdrops.fetched.cache_clear()
    with pytest.raises(SaccadeError, match=r"not in .* yet; fetch it with `saccade data fetch nature_photos`"):
        small_object("test", n=2, backdrop="nature_photos", **OF)
    assert photographs.status().state == "not fetched"
    assert photographs.fetch(folder_from=given) == f"folder {given}"
    assert photographs.fetch() == "cache" and photographs.status().state == "ready"
    home = tmp_path / "cache" / "nature_photos"
    told = json.loads((home / "manifest.json").read_text())
    assert [p["author"] for p in told] == ["author 0", "author 1"] and told[0]["licence"] == "CC0-1.0"
    used = small_object("test", n=4, backdrop="nature_photos", scale=0.5, **OF)
    assert [p.shape[1:] for p in used.behind.images] == [(100, 1100)] * 2  # three pixels in one
    (home / "p1.jpg").write_bytes(b"damaged")
    backdrops.fetched.cache_clear()
    with pytest.raises(SaccadeError, match=r"p1\.jpg is damaged; repair it with .*--again"):
        small_object("test", n=2, backdrop="nature_photos", **OF)
    (given / "p1.jpg").write_bytes(b"another image")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SaccadeError, match=r"was not found at folder .*p1\.jpg is damaged.*--from DIR"):
        photographs.fetch(folder_from=given)


def test_every_fetched_image_has_author_licence_and_checksum():
    assert len(photographs.PICTURES) == 20 == len({p.sha256 for p in photographs.PICTURES})
    for picture in photographs.PICTURES:
        assert picture.author and picture.licence and len(picture.sha256) == 64
        assert picture.package in photographs.FOLDERS
