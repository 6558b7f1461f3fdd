"""The harness on made-up functions. Nothing here is a timing that could fail on a busy machine."""

import json
import math
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from benchmarks import __main__ as bench
from benchmarks import arms, explorer, load, machine, measure, nets, page, plain, scaling, trees
from benchmarks.measure import Pair, Timing, flops
from benchmarks.pure import without_kernels
from saccade import models
from saccade.data.fetch import sources
from saccade.layers import kernels
from saccade.layers.kernels import neighbourhoods
from saccade.spec import Recipe
from saccade.training import cost


@pytest.fixture(autouse=True)
def _nothing_collected(monkeypatch):
    """Timing collects garbage before every round, which in the process of a test suite takes a fifth of a second."""
    monkeypatch.setattr(measure, "gc", SimpleNamespace(collect=lambda: 0))


def pair(**changes):
    facts = {
        "name": "made up",
        "setting": "tiny",
        "against": "itself 1.0",
        "aim": 2.0,
        "ours": lambda: None,
        "peer": lambda: None,
        "equal": "a number",
        "error": lambda: 0.0,
        "tolerance": 1e-6,
    }
    return Pair(**{**facts, **changes})


def test_the_order_is_reversed_every_other_round():
    calls = []
    measure.alternate(lambda: calls.append("a"), lambda: calls.append("b"), rounds=3, seconds=0.0)
    assert "".join(calls) == "aabb" + "ab" + "ba" + "ab"  # two of each to warm up and to count


def test_exponents_are_slopes_in_logarithms():
    assert scaling.exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2.0)
    assert scaling.exponent([1, 10], [5, 0.5]) == pytest.approx(-1.0)


def test_the_cost_of_a_step_is_a_line_over_the_batch():
    assert cost.line(8, 0.12, 32, 0.36) == (pytest.approx(0.04), pytest.approx(0.01))
    assert cost.line(8, 0.01, 32, 0.36) == (0.0, pytest.approx(0.36 / 32))  # noise gives no negative start
    assert cost.line(8, 0.4, 32, 0.36) == (0.36, 0.0)
    assert cost.line(1, 0.5, 1, 0.5) == (0.0, 0.5)


def test_ratios_are_taken_round_by_round():
    ours, peer = Timing((1.0, 2.0, 1.0), (1.0, 1.0, 1.0)), Timing((2.0, 8.0, 3.0), (5.0, 6.0, 7.0))
    found = measure.ratios(ours, peer, "cpu")
    assert (found["ratio"], found["low"], found["high"], found["ratio_wall"]) == (3.0, 2.0, 4.0, 6.0)
    assert found["chance"] == 0.75


@pytest.mark.parametrize(
    ("n", "low", "high", "chance"),
    [(5, 0, 4, 0.9375), (8, 0, 7, 0.992), (9, 1, 7, 0.961), (1, 0, 0, 0.0), (20, 5, 14, 0.959)],
)
def test_interval_is_from_order_statistics(n, low, high, chance):
    assert measure.interval(list(range(n))[::-1]) == (low, high, pytest.approx(chance, abs=1e-3))


def test_the_interval_holds_the_median_as_often_as_it_says():
    g = torch.Generator().manual_seed(0)
    draws = torch.randn(2000, 9, generator=g).exp().tolist()
    found = [measure.interval(d) for d in draws]
    held = sum(low <= 1 <= high for low, high, _ in found) / len(found)
    assert abs(held - found[0][2]) < 0.02


def test_difference_is_relative_to_the_largest_entry():
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])
    assert measure.difference([a], [b]) == 0.5
    assert measure.difference([torch.tensor([float("nan")])], [torch.ones(1)]) == math.inf
    assert measure.difference([torch.zeros(2)], [torch.zeros(2)]) == 0.0
    with pytest.raises(ValueError, match="shapes"):
        measure.difference([a], [torch.ones(3)])
    with pytest.raises(ValueError, match="tensors"):
        measure.difference([a], [a, b])


def test_a_row_that_is_not_equal_has_no_ratio():
    calls = []
    row = measure.time_pair(pair(error=lambda: 0.1, ours=lambda: calls.append(1)), rounds=3, seconds=0, gemm=1.0)
    assert not row["is_equal"] and "ratio" not in row and not calls
    assert page.measured(row) == "NOT EQUAL"
    assert not measure.time_pair(pair(error=lambda: math.nan), rounds=3, seconds=0, gemm=1.0)["is_equal"]


@pytest.mark.slow
def test_operations_are_counted():
    a = torch.randn(4, 5)
    row = measure.time_pair(pair(ours=lambda: a @ a.T), rounds=3, seconds=0, gemm=1e9)
    assert row["is_equal"] and row["flops"] == 2 * 4 * 5 * 4
    assert row["share_of_gemm"] == pytest.approx(row["flops_per_second"] / 1e9)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_sees_what_was_held_and_given_back():
    def holds(megabytes):
        def action():
            torch.ones(megabytes * 2**18)

        return action

    small, large = (measure.peak_bytes(holds(m)) for m in (1, 64))
    # what the child touches beside it, some 10 to 30 MB by the version of Python, is in both
    assert 60 * 2**20 < large - small < 70 * 2**20 and small < 40 * 2**20


def test_a_whole_page():
    rows = [measure.time_pair(pair(), rounds=3, seconds=0, gemm=1.0)]
    rows.append({**rows[0], "name": "held", "memory_aim": 5.0, "memory": {"ours": 2**20, "peer": 2**23, "ratio": 8.0}})
    found = {
        "machine": page.machine(),
        "rows": rows,
        "absent": ["a peer: absent"],
        "lab": [{"name": "answer", "setting": "9 runs", "aim": 1.0, "seconds": 0.5, "beside": "", "others": 0.0}],
        "gemm": 9e10,
        "seconds": 3.0,
        "quick": False,
        "kept": rows[:1],
        "explorer": [explorer.row("dragged", "40 moves", 100.0, 42.0, "ms", "so")],
        "scaling": [{"name": "grows", "of": "runs", "x": [1, 2], "seconds": [1.0, 2.0], "exponent": 1.0}],
        "cost_model": [
            {
                "name": "net",
                "args": {"width": 1},
                "fixed": 0.0,
                "picture": 1.0,
                "predicted": 2.0,
                "measured": 1.0,
                "ratio": 2.0,
            }
        ],
    }
    text = page.document(json.loads(json.dumps(found)))
    assert "| held | tiny | 1 MiB | 8 MiB | 5 | **8.0** |" in text and "- a peer: absent" in text
    assert "| dragged | 40 moves | 100 ms | **42 ms** | so |" in text
    assert "made up" in page.table(found) and "answer (9 runs): aim below 1 s, measured 500 ms" in page.table(found)
    assert "| answer | 9 runs | below 1 s | **500 ms** |  |" in text


def test_a_full_run_writes_and_a_quick_one_does_not(monkeypatch, tmp_path, capsys):
    row = measure.time_pair(pair(), rounds=3, seconds=0, gemm=1.0)
    found = {
        "machine": page.machine(),
        "rows": [row],
        "absent": [],
        "lab": [{"name": "answer", "setting": "9 runs", "aim": 1.0, "seconds": 0.5, "beside": "", "others": 0.0}],
        "gemm": 9e10,
        "seconds": 3.0,
        "quick": False,
        "kept": [],
        "scaling": [],
        "cost_model": [],
    }
    monkeypatch.setattr(bench, "run", lambda quick, only, tell: found)
    for extra, written in (["--quick"], False), (["--only", "made"], False), ([], True):
        monkeypatch.setattr(sys, "argv", ["bench", "--to", str(tmp_path), *extra])
        bench.main()
        assert (tmp_path / "docs" / "performance.md").exists() == written
    assert json.loads((tmp_path / "results" / "bench.json").read_text())["rows"][0]["name"] == "made up"
    found["rows"] = [{**row, "is_equal": False}]
    with pytest.raises(SystemExit, match="not the same function: made up"):
        bench.main()
    assert "made up" in capsys.readouterr().out


def test_rows_measured_again_take_their_places_and_the_others_stay(monkeypatch, tmp_path):
    row = measure.time_pair(pair(), rounds=3, seconds=0, gemm=1.0)
    first, second, new = ({**row, "name": name, "setting": "s", "ratio": 2.0} for name in ("a", "profile: b", "c"))
    found = {"machine": page.machine(), "rows": [second, first], "absent": [], "lab": [], "gemm": 9e10, "seconds": 3.0}
    found |= {"quick": False, "kept": [], "scaling": [], "cost_model": []}
    bench.write(found, tmp_path)
    again = [{**second, "ratio": 7.5}, new]
    monkeypatch.setattr(bench, "inside", lambda *asked: iter([{"gemm": 1.0}, *({"row": r} for r in again)]))
    bench.renew("profiles", tmp_path, None)
    rows = json.loads((tmp_path / "results" / "bench.json").read_text())["rows"]
    assert [(r["name"], r["ratio"]) for r in rows] == [("profile: b", 7.5), ("a", 2.0), ("c", 2.0)]
    text = (tmp_path / "docs" / "performance.md").read_text()
    assert "**7.50**" in text and "The rows of the profile were measured by themselves" in text
    again[0] = {**second, "is_equal": False}
    with pytest.raises(SystemExit, match="not the same function: profile: b"):
        bench.renew("profiles", tmp_path, None)


def test_arms_measured_again_take_their_places(monkeypatch, tmp_path):
    row = {"study": "a", "images": 3600, **machine.compared([1.0], [[2.0], [3.0]])}
    found = {"machine": page.machine(), "rows": [], "absent": [], "lab": [], "gemm": 9e10, "seconds": 3.0}
    found |= {"quick": False, "kept": [], "scaling": [], "cost_model": []}
    found["whole"] = [{**row, "arm": "x"}, {**row, "arm": "y"}, {**row, "study": "b", "arm": "x"}]
    bench.write(found, tmp_path)
    again = [{**row, "arm": "y", "ratio": 7.0}, {**row, "arm": "new", "ratio": 8.0}]
    monkeypatch.setattr(machine, "measured", lambda only: iter(again))
    bench.renew("machine", tmp_path, None, only="y")
    kept = json.loads((tmp_path / "results" / "bench.json").read_text())
    places = [("a", "x", 2.0), ("a", "y", 7.0), ("a", "new", 8.0), ("b", "x", 2.0)]
    assert [(r["study"], r["arm"], r["ratio"]) for r in kept["whole"]] == places
    assert "whole" not in kept.get("renewed", {})  # the other rows are as old as they were
    text = (tmp_path / "docs" / "performance.md").read_text()
    assert f"Of a 2 of 3 rows were measured by themselves on {kept['whole'][1]['measured']['day']}" in text


def test_rows_compare_real_functions():
    """The peer with the library's own attention is the same model as ours, and a changed one is noticed."""
    row = nets.thesis_net(2, False)
    assert isinstance(row, Pair) and row.error() < 1e-12
    net = models.build("mha_lenet", seed=0, reading="A", heads=2)
    other = nets.library_net(net)
    with torch.no_grad():
        other.first.attention.out_proj.bias.add_(1)
    facts = [nets.facts_of(m, 2, nets._attention_gradients) for m in (net.double(), other.double())]
    assert measure.difference(*facts) > 1e-3


def test_switching_kernels_off_is_undone():
    before = kernels.short_heads, neighbourhoods.aggregation
    with without_kernels():
        assert kernels.short_heads(3) is None and neighbourhoods.aggregation() is None
    assert (kernels.short_heads, neighbourhoods.aggregation) == before


@pytest.mark.slow
def test_the_work_of_other_programs_is_measured_beside_a_row():
    if load.machine_seconds() is None:
        pytest.skip("needs /proc")
    with load.watched() as alone:
        sum(range(3_000_000))
    own = load.own_seconds()
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    with load.watched() as beside:  # in a session of its own and not waited for: as another program
        time.sleep(2)
    other.kill()
    other.wait()
    assert alone["others"] >= 0 and beside["others"] > 0.05
    assert load.own_seconds() >= own


def test_a_row_beside_other_programs_is_marked_and_not_compared():
    row = {
        "name": "made up",
        "setting": "tiny",
        "against": "itself",
        "is_equal": True,
        "ratio": 121.0,
        "low": 100.0,
        "high": 140.0,
        "aim": 8.0,
        "others": 1.4,
    }
    assert "BUSY: 1.4 cores used by others" in page.measured(row)
    assert "BUSY" not in page.measured({**row, "others": 0.1}) and "BUSY" not in page.measured({**row, "others": None})
    found, before = ({"machine": {"cpu": "x"}, "rows": [{**row, **more}]} for more in ({"high": 9.0}, {"others": 0.0}))
    assert page.slower(found, before) == []
    assert page.slower({**found, "rows": [{**row, "high": 9.0, "others": 0.0}]}, before)


def test_runs_of_the_large_lab_are_all_different_and_have_seeds():
    runs = [explorer.varied(i, []).run for i in range(500)]
    assert len({r.key for r in runs}) == 500
    assert len({r.model for r in runs}) == len(explorer.MODELS) and {r.seed for r in runs} == set(range(7))


@pytest.mark.parametrize(("value", "said"), [(99.0, "aim 100 ms, measured 99 ms;"), (101.0, "measured 101 ms *;")])
def test_a_wait_beyond_its_aim_is_marked(value, said):
    assert said in explorer.line(explorer.row("dragged", "40 moves", 100.0, value, "ms", "so"))


def test_the_explorer_says_why_it_cannot_be_measured(monkeypatch):
    monkeypatch.setattr(explorer, "chromium", lambda: None)
    assert explorer.missing().startswith("the explorer: ")


def test_gains_of_an_older_checkout_are_weighted_by_hours():
    def row(study, images, before, after):
        sides = {name: {"seconds": s, "share": 1 / s} for name, s in (("before", before), ("after", after))}
        return {"study": study, "images": images, **sides}

    found = trees.totals([row("a", 3600, 4.0, 2.0), row("a", 3600, 2.0, 2.0), row("b", 7200, 1.0, 0.5)])
    assert found["a"]["gain"] == pytest.approx(6 / 4) and found["all"]["gain"] == pytest.approx(8 / 5)
    assert found["a"]["before_share"] == pytest.approx((4 * 0.25 + 2 * 0.5) / 6)
    assert found["b"]["after_share"] == pytest.approx(2.0)


def test_fused_attention_is_counted():
    q = torch.randn(2, 3, 5, 4)
    work = flops(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))
    assert work == 2 * 2 * (2 * 3 * 5 * 5 * 4)


PLAIN = {
    "basic_vit": {"dim": 16, "heads": 2, "depth": 2},
    "vit": {"dim": 16, "heads": 2, "depth": 2},
    "basic_cnn": {"width": 3},
    "convnet": {"width": 4, "stages": (1, 1)},
    "quadratic": {"dim": 12, "heads": 4, "depth": 2, "hidden": 8, "patch": 8},
    "learned_relative": {"dim": 12, "heads": 4, "depth": 2, "hidden": 8, "patch": 8},
    "mha_lenet": {"heads": 2},
    "resnet18": {"width": 8},
    "resnet50": {"width": 8, "stages": (1, 1), "stem": "half"},
    "conv_stem_vit": {"dim": 12, "heads": 2, "depth": 1, "hidden": 8, "patch": 8, "width": 8},
    "local_dw": {"size": "mini", "dynamic": False},
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_module_is_the_same_function_and_counts_no_less(name):
    ours = models.build(name, seed=0, **PLAIN[name]).double().eval()
    plainly = plain.plain(ours).double().eval()
    x, _ = nets.pictures(2, torch.float64)
    assert plainly is not ours
    with without_kernels(), torch.no_grad():
        assert measure.difference([plainly(x)], [ours(x)]) < 1e-12
        work = [flops(lambda net=net: net(x)) for net in (plainly, ours)]
    assert work[0] > work[1] if name in ("basic_vit", "vit", "quadratic") else work[0] > 0.8 * work[1]
    with torch.no_grad():
        list(plainly.parameters())[-1].add_(1)
        assert measure.difference([plainly(x)], [ours(x)]) > 1e-6  # of its own weights


def test_a_plain_optimiser_is_the_recipes_own_without_fusing():
    model = models.build("quadratic", seed=0, **PLAIN["quadratic"])
    made = plain.optimizer(Recipe(images=1, optimizer="adamw", weight_decay=0.1), model)
    assert isinstance(made, torch.optim.AdamW) and not any(group["fused"] for group in made.param_groups)
    assert sorted(group["weight_decay"] for group in made.param_groups) == [0.0, 0.1]


def test_the_faster_script_counts_on_the_whole_machine():
    row = machine.compared([1.0, 2.0, 1.0], [[9.0, 9.0, 9.0], [3.0, 4.0, 3.0]])
    assert (row["ratio"], row["workers"], row["low"], row["high"]) == (3.0, 2, 2.0, 3.0)
    rows = [{"study": "a", "arm": "x", "images": 3600, **row}, {"study": "b", "arm": "y", "images": 7200, **row}]
    rows[1] |= {"seconds": 1.0, "peer_seconds": 6.0}
    found = machine.totals(rows)
    assert found["a"]["ratio"] == 3.0 and found["all"] == {"hours": 3.0, "peer_hours": 15.0, "ratio": 5.0}
    assert "| **all** | all arms | 3.0 h | 15.0 h |  | **5.00** |  |" in page._machine(rows)


def test_shares_are_weighted_by_hours_and_rows_of_older_tables_are_left_out():
    row = {"study": "a", "arm": "x", "batch": 4, "flops": 2e6, "computed": 1e6, "images": 3600, "seconds": 1.0}
    row |= {"share": 0.8, "share_computed": 0.4, "ratio": 2.0, "peer_seconds": 2.0}
    other = {**row, "arm": "y", "images": 1200, "share": 0.4, "share_computed": 0.4, "peer_seconds": 6.0}
    total = arms.totals([row, other])["all"]
    assert total["share"] == pytest.approx(0.7) and total["share_computed"] == pytest.approx(0.4)
    assert total["ratio"] == pytest.approx(3.0)
    old = {k: v for k, v in row.items() if k != "computed"}
    assert page._arms([old]) == "Not measured in this run." and "| y |" in page._arms([old, other])


def test_a_part_says_when_and_on_which_machine_it_was_measured():
    found = {
        "machine": {"cpu": "this"},
        "renewed": {"lab": "2026-01-01", "whole": {"day": "2026-01-02", "cpu": "that"}},
    }
    assert "on 2026-01-01 (" in page._renewed(found, "lab") and not page._renewed(found, "arms")
    assert "on 2026-01-02 on that (`python -m benchmarks --part machine`)" in page._renewed(found, "whole")


@pytest.mark.slow
def test_processes_train_an_arm_on_the_whole_machine():
    if any(sources.status(name).state != "ready" for name in ("mnist", "cifar10")):
        pytest.skip("needs MNIST and CIFAR-10 in the cache")
    (row,) = machine.measured("digits_on_backgrounds CNN, pooled")
    assert row["ratio"] > 0 and row["workers"] in machine.LOADERS and row["images"] > 0
