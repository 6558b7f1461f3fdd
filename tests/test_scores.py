"""Score files from elsewhere: formats, known answers, one sentence for each mistake."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from saccade import stats
from saccade.spec import SaccadeError
from saccade.subjects import scores

REPORTED = [1, 21, 49, 26, 3]  # Feer et al. 2022, Figure 5, ResNet-50: 2.09 in the mean


def _reported(seed=0):
    """Scores and 0/1 labels of 100 images with the histogram of the report."""
    random = np.random.default_rng(seed)
    z, y = random.normal(size=(100, 10)), np.zeros((100, 10), int)
    for row, count in enumerate(np.repeat(np.arange(5), REPORTED)):
        order = np.argsort(-z[row])
        y[row, random.permutation(order[:4])[:count]] = 1
        y[row, random.permutation(order[4:])[: 4 - count]] = 1
    return z, y


def _files(folder, z, y, write=None):
    names = folder / "scores.csv", folder / "labels.csv"
    for name, values in zip(names, (z, y), strict=True):
        if isinstance(values, str):
            name.write_text(values)
        else:
            (write or (lambda f, v: np.savetxt(f, v, delimiter=",", fmt="%.8g")))(name, values)
    return names


def _frame(index):
    """As pandas writes a data frame: column names, and row numbers below an empty name."""

    def write(file, values):
        values = values if values.ndim == 2 else values[:, None]
        lines = [
            ",".join(
                [""] * index + [str(i) for i in range(values.shape[1])]
                if values.shape[1] > 1
                else [""] * index + ["label"]
            )
        ]
        lines += [",".join([str(i)] * index + [repr(v) for v in row.tolist()]) for i, row in enumerate(values)]
        file.write_text("\n".join(lines) + "\n")

    return write


def _lines(values):
    return "\n".join(" ".join(map(str, np.ravel(row))) for row in values)


FORMATS = {
    "comma": None,
    "savetxt": lambda f, v: np.savetxt(f, v),  # 1.234000000000000000e-01 5.6e+00
    "tab": lambda f, v: np.savetxt(f, v, delimiter="\t"),
    "semicolon and spaces": lambda f, v: np.savetxt(f, v, delimiter=" ; "),
    "savetxt with header": lambda f, v: np.savetxt(f, v, header="a b c"),
    "frame with row numbers": _frame(1),
    "frame": _frame(0),
    "no newline at the end": lambda f, v: f.write_text(_lines(v)),
    "many newlines at the end": lambda f, v: f.write_text(_lines(v) + "\n\n\n"),
    "windows": lambda f, v: f.write_bytes(
        b"\xef\xbb\xbf" + "\r\n".join(",".join(map(str, np.ravel(r))) for r in v).encode()
    ),
    "quoted": lambda f, v: f.write_text("\n".join(",".join(f'"{c}"' for c in np.ravel(r)) for r in v)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_say_the_same(name, tmp_path):
    z, y = _reported()
    told = scores.compare(*_files(tmp_path, z, y, FORMATS[name]))
    found = told["top_k_matching"]
    assert found["histogram"] == REPORTED and math.isclose(found["mean"], 2.09) and found["k"] == 4
    index = np.argmax(z, 1)
    index[:30] = (index[:30] + 1) % 10
    told = scores.compare(*_files(tmp_path, z, index, FORMATS[name]))
    assert told["accuracy"]["right"] == 70 and told["accuracy"]["value"] == 0.7 and told["n"] == 100


def test_the_reported_histogram_with_interval_and_chance(tmp_path):
    found = scores.compare(*_files(tmp_path, *_reported()))["top_k_matching"]
    assert math.isclose((found["high"] - found["low"]) / 2 / 1.984, 0.079, abs_tol=0.001)  # the sheet's standard error
    assert found["by_chance"]["mean"] == 1.6
    assert [round(p, 4) for p in found["by_chance"]["histogram"]] == [0.0714, 0.3810, 0.4286, 0.1143, 0.0048]
    assert found["ties"] == 0


def test_one_hot_is_accuracy_with_its_interval_and_can_be_asked_for_more(tmp_path):
    z, _ = _reported()
    files = _files(tmp_path, z, np.eye(10, dtype=int)[np.argsort(-z, 1)[:, 1]])
    told = scores.compare(*files)
    assert set(told) == {"n", "classes", "labels", "accuracy"}
    wilson = stats.proportion(0, 100)
    assert (told["accuracy"]["value"], told["accuracy"]["high"]) == (0, wilson.high)
    both = scores.compare(*files, probes=("accuracy", "top-k-matching"), k=2)
    assert both["top_k_matching"]["mean"] == 1 and both["top_k_matching"]["k"] == 2
    assert both["top_k_matching"]["by_chance"]["mean"] == 0.2


def test_numbers_in_one_line_and_in_exponents_are_labels(tmp_path):
    z = np.eye(5)[[3, 1, 4]]
    assert scores.compare(*_files(tmp_path, z, "3 1 4"))["accuracy"]["value"] == 1
    assert scores.compare(*_files(tmp_path, z, "3.0e+00\n1\n0.0\n"))["accuracy"]["right"] == 2


def test_images_with_different_numbers_of_classes(tmp_path):
    files = _files(tmp_path, "3,2,1\n3,2,1\n", "1,1,0\n0,0,1\n")
    with pytest.raises(SaccadeError, match="from 1 to 2 classes"):
        scores.compare(*files)
    found = scores.compare(*files, k=2)["top_k_matching"]
    assert found["histogram"] == [1, 0, 1] and found["by_chance"]["mean"] == 1
    np.testing.assert_allclose(found["by_chance"]["histogram"], [1 / 6, 2 / 3, 1 / 6])


def test_equal_scores_are_decided_the_same_way_and_counted(tmp_path):
    told = scores.compare(*_files(tmp_path, "1 1 1\n1 1 1\n0 1 0\n", "0\n2\n1\n"))["accuracy"]
    assert told["right"] == 2 and told["ties"] == 2


@pytest.mark.parametrize("name", ["image_id", "id", "Image", "file name", "sample_idx"])
def test_a_column_of_ids_below_a_name_is_no_class(name, tmp_path):
    z = f"{name},cat,dog,frog\n107,.1,.7,.2\n22,.8,.1,.1\n913,.1,.1,.8\n"
    told = scores.compare(*_files(tmp_path, z, f"{name},label\n107,1\n22,0\n913,2\n"))
    assert told["classes"] == 3 and told["accuracy"]["right"] == 3
    text = z.replace("107", "a.png").replace("22", "b.png").replace("913", "c.png")
    assert scores.compare(*_files(tmp_path, text, "1\n0\n2\n"))["accuracy"]["right"] == 3


def test_a_class_may_be_called_key(tmp_path):
    told = scores.compare(*_files(tmp_path, "key,lock\n.1,.7\n.8,.1\n", "1\n0\n"))
    assert told["classes"] == 2 and told["accuracy"]["right"] == 2


def test_ids_of_both_files_are_compared(tmp_path):
    z = "id,a,b,c\n7,.1,.7,.2\n8,.8,.1,.1\n9,.1,.1,.8\n"
    with pytest.raises(SaccadeError, match=r'scores.csv, line 4 is of image "9", and .*labels.csv has no such image'):
        scores.compare(*_files(tmp_path, z, "id,label\n7,1\n6,2\n8,0\n"))
    with pytest.raises(SaccadeError, match=r'labels.csv, line 4 is of image "7", which an earlier row is of too'):
        scores.compare(*_files(tmp_path, z, "id,label\n7,1\n9,2\n7,0\n"))
    with pytest.raises(SaccadeError, match=r'scores.csv, line 4 is of image "9", and .* \(1 of 3 are not in it\)'):
        scores.compare(*_files(tmp_path, z, "id,label\n7,1\n8,0\n"))
    assert scores.compare(*_files(tmp_path, z, "id,label\n7,1\n9,2\n8,0\n"))["accuracy"]["right"] == 3
    assert scores.compare(*_files(tmp_path, z, "id,label\n7.0,1\n8,0\n9,2\n"))["accuracy"]["right"] == 3


GOOD = "1,2,3\n4,5,6\n7,8,8\n"


@pytest.mark.parametrize(
    ("z", "y", "says"),
    [
        (GOOD, "0\n1\n", r"labels\.csv has 2 rows and .*scores\.csv has 3"),
        (GOOD, "0,1\n1,0\n1,0\n", r"labels\.csv has 2 columns and .*scores\.csv has 3"),
        ("1,2,3\n4,5\n7,8,9\n", "0\n1\n2\n", "line 2 has 2 columns and the first row has 3"),
        ("1,2,3\n4,x,6\n7,8,9\n", "0\n1\n2\n", 'line 2, column 2 is "x", not a number'),
        ("1,2,3\n4,,6\n7,8,9\n", "0\n1\n2\n", "line 2, column 2 is empty"),
        ("a,b,c\n1,2,3\n4,nan,6\n7,8,9\n", "0\n1\n2\n", r"line 3, column 2 is not a number \(NaN\)"),
        ("1,2,3\n4,-inf,6\n7,8,9\n", "0\n1\n2\n", "line 2, column 2 is infinite"),
        ("1,2,3\n4,5,6\n7,8,1e999\n", "0\n1\n2\n", "line 3, column 3 is infinite"),
        ("what,a,b,c\n17,.5,.1,.4\n3,.5,.4,.1\n99,.2,.4,.4\n", "0\n1\n2\n", r"first column .*\(what\).*looks like"),
        ("1,2,3\n\n7,8,9\n", "0\n1\n2\n", "line 2 is empty"),
        ("", "0\n", "has no numbers"),
        ("a,b,c\n", "0\n", "header and no numbers"),
        ("a,b\n1,2,3,4\n1,2,3,5\n", "0\n", "2 names in its header and 4 columns"),
        ("1\n2\n3\n", "0\n1\n2\n", "one column"),
        ("0,1.5,3\n1,2,6\n2,8,9\n", "0\n1\n2\n", "counts its rows"),
        (GOOD, "0\n3\n1\n", r"line 2 has the label 3, and the 3 classes of .* are 0 to 2\."),
        (GOOD, "1\n3\n2\n", "count from 0"),
        (GOOD, "0\n-1\n2\n", "label -1"),
        (GOOD, "0\n0.5\n2\n", r"label 0\.5"),
        (GOOD, "0,1,0\n0,2,0\n1,0,0\n", "line 2 should have only 0 and 1"),
        (GOOD, "0,1,0\n0,0,0\n1,0,0\n", "line 2 should have only 0 and 1, with at least one 1"),
        (GOOD, "cat\ndog\nfrog\n", 'line 2, column 1 is "dog", not a number; labels in words need a header'),
        (
            "a,b,label\n.1,.9,1\n.9,.1,0\n",
            "1\n0\n",
            r"column 3 of .* \(label\) .*looks like labels",
        ),
        (".1,.7,.2,1\n.8,.1,.1,0\n.1,.1,.8,2\n", "1\n0\n2\n", "column 4 of .* looks like labels"),
        ("file,answer\na.png,cat\nb.png,dog\n", "0\n1\n", 'line 2, column 2 is "cat", not a number; give plain'),
        ("0.1,,0.3\n0.2,0.3,0.4\n", "0\n", "line 1, column 2 is empty; give plain numbers"),
        ('a,b,c\n1,2,"3\n4,5,6\n', "0\n", "quote that is not closed"),
    ],
)
def test_one_sentence_for_each_mistake(z, y, says, tmp_path):
    with pytest.raises(SaccadeError, match=says) as error:
        scores.compare(*_files(tmp_path, z, y))
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


def test_files_that_are_none(tmp_path):
    good = tmp_path / "good.csv"
    good.write_text(GOOD)
    with pytest.raises(SaccadeError, match="No such file"):
        scores.compare(tmp_path / "no.csv", good)
    np.savez(tmp_path / "z.npz", z=np.eye(3))
    with pytest.raises(SaccadeError, match="not a text file"):
        scores.compare(tmp_path / "z.npz", good)
    (tmp_path / "y.csv").write_text("0\n1\n2\n")
    with pytest.raises(SaccadeError, match="did you mean top_k_matching"):
        scores.compare(good, tmp_path / "y.csv", probes=("topk_matching",))
    with pytest.raises(SaccadeError, match="k must be between 1 and the number of classes, 3"):
        scores.compare(good, tmp_path / "y.csv", probes=("top_k_matching",), k=4)


SHEET = "name,cat,dog,frog\na.png,.1,.7,.2\nb.png,.8,.1,.1\nc.png,.1,.1,.8\nd.png,.1,.2,.7\n"  # 3 of 4 are right
WORDS = "name,label\na.png,dog\nb.png,cat\nc.png,frog\nd.png,dog\n"


def _reversed(text):
    first, *rest = text.splitlines()
    return "\n".join([first, *rest[::-1]])


AS_THEY_COME = {
    "words": (SHEET, WORDS),
    "no header": (SHEET.partition("\n")[2], "a.png,1\nb.png,0\nc.png,2\nd.png,1\n"),
    "no header in the labels": (SHEET, WORDS.partition("\n")[2]),
    "another order": (SHEET, _reversed(WORDS)),
    "folders in one": (SHEET, _reversed(WORDS).replace("\n", "\nval/dogs/")),
    "a table about the images": (SHEET, "name,split,label\na.png,v,1\nb.png,v,0\nc.png,v,2\nd.png,v,1\n"),
    "decimal commas": (SHEET.replace(",", ";").replace(".1", "0,1").replace(".7", "0,7"), WORDS.replace(",", ";")),
    "quotes of a word processor": (SHEET.replace("a.png", "“a, b.png”"), WORDS.replace("a.png", "“a, b.png”")),
    "a header of numbers": (SHEET.replace("cat,dog,frog", "4,8,15"), "1\n0\n2\n1\n"),
    "spaces, and no name for images": (SHEET.replace("name,", "").replace(",", " "), WORDS),
    "an unknown word for images": (SHEET.replace("name", "photo"), WORDS.replace("name", "photo")),
}


@pytest.mark.parametrize("kind", AS_THEY_COME)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_files_as_they_come(kind, encoding, tmp_path):
    if encoding == "cp1252" and kind.startswith("quotes"):
        pytest.skip("that encoding has other numbers for these quotes")
    z, y = tmp_path / "scores.csv", tmp_path / "labels.csv"
    for file, text in zip((z, y), AS_THEY_COME[kind], strict=True):
        file.write_bytes(text.replace("frog", "grün").replace("\n", "\r\n").encode(encoding))
    told = scores.compare(z, y)
    assert (told["n"], told["classes"], told["accuracy"]["right"]) == (4, 3, 3)


def test_the_first_image_is_not_taken_for_a_header(tmp_path):
    """Both files without a header: one image fewer in both would go unnoticed."""
    files = _files(tmp_path, "beach.png,0,1\nwood.png,0.5,0.1\n", "beach.png,0\nwood.png,0\n")
    assert scores.compare(*files)["accuracy"] == {**scores.compare(*files)["accuracy"], "n": 2, "right": 1}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_arrays_of_numpy(kind, tmp_path):
    z, y = _reported()
    np.save(tmp_path / "z.npy", z.astype(kind))
    np.save(tmp_path / "y.npy", y)
    assert scores.compare(tmp_path / "z.npy", tmp_path / "y.npy")["top_k_matching"]["histogram"] == REPORTED
    np.save(tmp_path / "index.npy", np.argmax(z, 1))
    assert scores.compare(tmp_path / "z.npy", tmp_path / "index.npy")["accuracy"]["value"] == 1


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (
            np.array([{}], dtype=object),
            r"as an array of numbers \(Object arrays.*; save it with numpy.save",
        ),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\) and type float64; one row of numbers per image"),
        (np.array(["a", "b"]), "one row of numbers per image"),
        (np.array([[1, np.nan], [0, 1]]), r"z\.npy, row 1, column 2 is not a number \(NaN\)"),
    ],
)
def test_arrays_that_are_no_scores(array, says, tmp_path):
    np.save(tmp_path / "z.npy", array, allow_pickle=True)
    with pytest.raises(SaccadeError, match=says):
        scores.read_scores(tmp_path / "z.npy")
    (tmp_path / "z.npy").write_bytes((tmp_path / "z.npy").read_bytes()[:70])
    with pytest.raises(SaccadeError, match="cannot be read as an array"):
        scores.read_scores(tmp_path / "z.npy")


def _saccade(*words):
    code = (
        "import sys; from saccade.__main__ import main\ntry:\n    main()\nfinally:\n"
        "    assert 'torch' not in sys.modules"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, env=os.environ
    )


@pytest.mark.slow
def test_the_command_answers_without_torch(tmp_path):
    z, y = _files(tmp_path, *_reported())
    done = _saccade("probe", "--scores", z, "--labels", y, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["top_k_matching"]["histogram"] == REPORTED and told["classes"] == 10
    shown = _saccade("probe", "--scores", z, "--labels", y).stdout
    assert "top-4 matching 2.09 [1.93" in shown and "0.0714" in shown
    wrong = _saccade("probe", "--scores", z, "--labels", z)
    assert wrong.returncode == 2 and len(wrong.stderr.strip().splitlines()) == 1 and "only 0 and 1" in wrong.stderr
    assert "--labels" in _saccade("probe", "--scores", z).stderr
