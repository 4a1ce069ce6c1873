"""A chosen model against the dense network it came from: bytes, memory, latency and the price of post-training.

`python -m benchmarks.compact --model mnist.slab` takes a 784-400-600-10 model of MNIST; without the file it is fitted
first, by the default recipe (minutes; stopped and started again, it goes on). All candidates take turns in one
process. `--rule` measures when a layer by rows is faster than a dense one, and keeps that too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import nn

import slabnet as sn
from benchmarks.record import RECORDS, provenance, write_page, write_record
from benchmarks.step_time import plain_network, plain_step
from slabnet.compact.layers import FEW, SPARSE_BELOW, KeptLinear
from slabnet.export.as_numpy import to_numpy
from slabnet.export.as_onnx import to_onnx
from slabnet.export.as_torch import to_torch
from slabnet.export.plan import Plan, make_plan
from slabnet.kernels.sparse import SparseChain
from slabnet.model.drawing import drawable_layers
from slabnet.model.elbo import elbo
from slabnet.training.optimiser import make_optimiser

SIZES, SEED, BATCHES = (784, 400, 600, 10), 0, (1, 100, 10_000)
NAMES = {
    "torch_dense": "dense network, torch",
    "onnx_dense": "dense network, onnxruntime",
    "compact": "`sn.compact(net, chosen)`",
    "onnx": "`--to onnx`, onnxruntime",
    "torch": "`--to torch`, torch alone",
    "numpy": "`--to numpy`, numpy alone",
}
DENSE, OURS = ("torch_dense", "onnx_dense"), ("compact", "onnx", "torch", "numpy")
ASKED = {"file": (1 / 50, 1 / 100), "1": (0.5, 0.2), "10000": (0.25, 0.1), "step": (0.6, 0.3)}


def model(path: Path) -> sn.Network:
    """The model in `path`, fitted first where there is none."""
    if not path.exists():
        from slabnet.data import load

        net = sn.mlp(SIZES, seed=SEED)
        checkpoints = path.with_name(f"{path.name}.checkpoints")
        sn.fit(
            net, load("mnist").train, sn.TrainConfig(seed=SEED), progress="lines", checkpoint=checkpoints, resume=True
        )
        sn.save(net, path, data="mnist")
    loaded = sn.load(path)
    assert isinstance(loaded, sn.Network)
    return loaded


def dense_plan(net: nn.Module) -> Plan:
    """A plain network as a plan, to be written as ONNX by the same code."""
    steps: list[dict[str, Any]] = []
    for part in net:  # type: ignore[attr-defined]
        if isinstance(part, nn.Linear):
            weight = part.weight.detach().numpy()
            steps.append(
                {"kind": "linear", "weight": weight, "mask": weight == weight, "bias": part.bias.detach().numpy()}
            )
        else:
            steps.append({"kind": "ReLU"})
    return Plan(networks=(tuple(steps),), response="categorical", shape=(SIZES[0],), outputs=SIZES[-1], draws=0)


def turns(candidates: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, float]:
    """Seconds a call, the first quartile of rounds taken in turns, each of `calls` calls.

    One thread is told by its processor time, which on a quiet machine is the latency, and stays it on a busy one.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 2):
        for name, run in candidates.items():
            started = clock()
            for _ in range(calls):
                run()
            if turn >= 2:
                times[name].append((clock() - started) / calls)
    return {name: statistics.quantiles(seen, n=4)[0] for name, seen in times.items()}


def runners(folder: Path, small: sn.Compact, plain: nn.Module) -> dict[str, Callable[[torch.Tensor], Any]]:
    """Each runtime as a function of a batch; what must be converted was converted before."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()

    def session(path: str) -> Callable[[torch.Tensor], Any]:
        made = onnxruntime.InferenceSession(folder / path, options, providers=["CPUExecutionProvider"])
        return lambda x: made.run(["logits"], {"x": x.numpy()})

    spec = importlib.util.spec_from_file_location("exported", folder / "numpy.py")
    assert spec is not None
    assert spec.loader is not None
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    program = torch.export.load(folder / "torch.pt2").module()
    return {
        "torch_dense": plain,
        "onnx_dense": session("dense.onnx"),
        "compact": small,
        "onnx": session("onnx.onnx"),
        "torch": program,
        "numpy": lambda x: exported.predict(x.numpy()),
    }


@torch.no_grad()
def latency(folder: Path, small: sn.Compact, plain: nn.Module, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds a batch."""
    measured: dict[str, dict[str, float]] = {}
    made = runners(folder, small, plain)
    for batch in BATCHES:
        x = torch.rand(batch, SIZES[0], generator=torch.Generator().manual_seed(SEED))
        bound = {name: _bind(run, x) for name, run in made.items()}
        calls, times = {1: (50, rounds), 100: (10, rounds), 10_000: (1, max(10, rounds // 4))}[batch]
        seconds = turns(bound, times, calls)
        measured[str(batch)] = {name: round(1e6 * value, 2) for name, value in seconds.items()}
    return measured


def _bind(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Callable[[], Any]:
    return lambda: run(x)


_MEMORY = """
import sys, numpy as np
kind, path = sys.argv[1:]
def resident():
    return int(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1]) * 1024
x = np.random.default_rng(0).random((100, 784), dtype=np.float32)
if kind in ('torch_dense', 'torch'):
    import torch
    before = resident()
    run = torch.export.load(path).module(); x = torch.from_numpy(x)
elif kind in ('onnx_dense', 'onnx'):
    import onnxruntime
    before = resident()
    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider']); run = lambda x: session.run(None, {'x': x})
elif kind == 'compact':
    import torch, slabnet
    before = resident()
    net = slabnet.load(path); x = torch.from_numpy(x); torch.set_grad_enabled(False); run = net
else:
    import importlib.util
    before = resident()
    spec = importlib.util.spec_from_file_location('m', path); m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m); run = m.predict
run(x)
print(before, resident())
"""


def memory(folder: Path) -> dict[str, dict[str, int]]:
    """Resident bytes of a process that has loaded the model and run 100 rows, and how much of it came with that."""
    paths = {"torch_dense": "dense.pt2", "onnx_dense": "dense.onnx", "compact": "small.slab"}
    paths |= {"onnx": "onnx.onnx", "torch": "torch.pt2", "numpy": "numpy.py"}
    measured = {}
    for name, path in paths.items():
        run = subprocess.run(
            [sys.executable, "-c", _MEMORY, name, str(folder / path)], capture_output=True, text=True, check=True
        )
        before, after = map(int, run.stdout.split()[-2:])
        measured[name] = {"process": after, "model": after - before}
    return measured


def step_price(net: nn.Module, rounds: int) -> dict[str, Any]:
    """A step of post-training the compact network, as a multiple of a plain dense step, at 1% and as chosen."""
    x = torch.rand(100, SIZES[0], generator=torch.Generator().manual_seed(SEED))
    y = torch.arange(100) % SIZES[-1]
    dense = plain_step(plain_network())
    made = {"plain": lambda: dense(x, y)}
    chosen = {"at_1_percent": sn.budget_model(net, density=0.01), "median": sn.median_model(net)}
    for name, selection in chosen.items():
        made[name] = _our_step(sn.compact(net, selection, "distribution"), x, y)
    seconds = turns(made, rounds, 5)
    return {name: round(seconds[name] / seconds["plain"], 3) for name in chosen}


def _our_step(small: sn.Compact, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    optimiser = make_optimiser(small, small.likelihood, sn.TrainConfig(), omega=False)
    noise, layers = torch.Generator().manual_seed(SEED), drawable_layers(small.train())

    def step() -> None:
        terms = elbo(small, small.likelihood, x, y, n=60_000, draw=sn.local, seed=noise, layers=layers)
        optimiser.zero_grad(set_to_none=True)
        (terms.kl - terms.log_likelihood).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


@torch.no_grad()
def rule(rounds: int) -> list[dict[str, Any]]:
    """How long a linear layer takes by rows, as a multiple of a dense one, for some sizes, densities and batches."""
    rows = []
    generator = torch.Generator().manual_seed(SEED)
    for inputs, units in ((64, 64), (256, 128), (400, 600), (784, 400)):
        for density in (0.01, 0.05, 0.1, 0.2, 0.3, 0.5):
            mask = torch.rand(units, inputs, generator=generator) < density
            layer = KeptLinear(torch.randn(units, inputs, generator=generator), mask, torch.zeros(units))
            by_rows, dense = layer.rows(nn.Identity()), layer.weight
            chain = SparseChain(torch.arange(inputs, dtype=torch.int32), [by_rows])
            row: dict[str, Any] = {"inputs": inputs, "units": units, "density": density}
            for batch in BATCHES:
                x = torch.rand(batch, inputs, generator=generator)
                made = {"rows": _bind(chain, x), "dense": _bind(lambda x, w=dense: nn.functional.linear(x, w), x)}
                seconds = turns(made, max(5, rounds // 4), {1: 50, 100: 10, 10_000: 1}[batch])
                row[str(batch)] = round(seconds["rows"] / seconds["dense"], 3)
            rows.append(row)
            print(row, flush=True)
    return rows


def measure(path: Path, rounds: int) -> dict[str, Any]:
    net, plain = model(path), plain_network().eval()
    chosen = sn.median_model(net)
    small, plan = sn.compact(net, chosen), make_plan(net, chosen)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sn.save(small, folder / "small.slab")
        (folder / "dense.onnx").write_bytes(to_onnx(dense_plan(plain)))
        (folder / "dense.pt2").write_bytes(to_torch(dense_plan(plain)))
        (folder / "onnx.onnx").write_bytes(to_onnx(plan))
        (folder / "torch.pt2").write_bytes(to_torch(plan))
        (folder / "numpy.py").write_bytes(to_numpy(plan))
        sizes = {"compact": "small.slab", "onnx": "onnx.onnx", "torch": "torch.pt2", "numpy": "numpy.py"}
        files = {key: (folder / file).stat().st_size for key, file in sizes.items()}
        times = latency(folder, small, plain, rounds)
        resident = memory(folder)
    weights = [p for p in plain.parameters() if p.ndim > 1]
    return {
        "weights": small.weights,
        "density": small.weights / sum(p.numel() for p in weights),
        "inputs": len(small.inputs),
        "neurons": {key: len(neurons) for key, neurons in small.neurons.items()},
        "dense_bytes": 4 * sum(p.numel() for p in weights),
        "files": files,
        "latency": times,
        "memory": resident,
        "step": step_price(net, rounds),
        "largest_difference": _difference(net, chosen, small),
        "threads": torch.get_num_threads(),
    }


@torch.no_grad()
def _difference(net: nn.Module, chosen: sn.Selection, small: sn.Compact) -> float:
    """Between the logits of the masked and the compact network, relative to the largest of a row."""
    x = torch.rand(2000, SIZES[0], generator=torch.Generator().manual_seed(SEED))
    with sn.drawing(net, sn.fixed(chosen.masks)):
        want = net(x)
    return float(((small(x) - want).abs() / want.abs().amax(1, keepdim=True)).max())


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """The best of ours as a multiple of the best dense one, per batch; the smallest file; the step at 1%."""
    made = {
        batch: min(times[name] for name in OURS) / min(times[name] for name in DENSE)
        for batch, times in results["latency"].items()
    }
    return made | {
        "file": results["files"]["compact"] / results["dense_bytes"],
        "step": results["step"]["at_1_percent"],
    }


def page(record: dict[str, Any]) -> str:
    results, made = record["results"], ratios(record["results"])
    left = "-".join(str(n) for n in (results["inputs"], *results["neurons"].values()))
    lines = [
        "# Deploy",
        "",
        "<!-- made by `python -m benchmarks.compact` from benchmarks/records; do not edit -->",
        "",
        "The median model keeps a small part of the weights. `compact` makes a network of just that part, and `export` writes",
        "it for places where slabnet is not installed.",
        "",
        "```python",
        "import slabnet as sn",
        "",
        'train, (x, y) = sn.data.load("digits").train, sn.data.load("digits").test',
        "net, config = sn.mlp((64, 50, 10)), sn.TrainConfig(epochs=10, lr=5e-3, omega_lr=0.1)",
        'sn.fit(net, train, config, progress="off")',
        "",
        "chosen = sn.median_model(net)",
        "small = sn.compact(net, chosen)  # the means: a plain nn.Module",
        "small.inputs, small.neurons  # which of the original ones it kept",
        'sn.save(small, "m.slab")  # and sn.load("m.slab")',
        "",
        'drawn = sn.compact(net, chosen, "distribution")  # mean and spread of what is left',
        "sn.predict(drawn, x, draws=100)  # the draws of fixed(chosen.masks, exact), cheaper",
        'sn.fit(drawn, train, config, progress="off")  # the steps of fit(net, ..., fixed=chosen), cheaper',
        'sn.save(net, "full.slab", selection=chosen)',
        "```",
        "",
        "```bash",
        "slabnet export m.slab --to onnx  --out m.onnx      # onnxruntime and others",
        "slabnet export m.slab --to torch --out m.pt2       # torch.export.load(...).module()",
        "slabnet export m.slab --to numpy --out m.py        # one file: import m; m.predict(x)",
        "slabnet export full.slab --to onnx --out averaged.onnx --draws 20",
        "```",
        "",
        "Each gives `logits`, `probabilities` and `entropy` (numbers: `mean` and `variance`, or `median` and",
        "`log_variance` where there is no mean; counts for an exposure of 1) for any number",
        "of rows. With `--draws R`, R draws of the weights that are left are fixed and averaged in the graph: `probabilities`",
        "and `entropy` are then those of `predict`, and there are no logits. Names of the inputs travel in the file (ONNX",
        "metadata, `about.json` in the torch program, `INPUT_NAMES` in the numpy module), standardisation is part of the",
        "graph, and preprocessing that a graph cannot hold goes to a JSON beside it. `--to onnx` needs",
        "`pip install 'slabnet[export]'`.",
        "",
        "What is dead is cut exactly: what cut-off neurons still send is folded into intercepts at the means; with draws such",
        "neurons stay, because what they send is random and shared. Chains of layers (`mlp`, `convnet`, `nn.Sequential`) can",
        "be cut; LayerNorm, BatchNorm, residual connections and code of your own are refused by name.",
        "",
        "## Measured",
        "",
        f"A model of MNIST, 784-400-600-10: {results['weights']} of {results['dense_bytes'] // 4:,} weights are left "
        f"({results['density']:.2%}), between",
        f"{left} inputs and units. Logits differ from the masked network's by at most {results['largest_difference']:.0e} of a",
        f"row's largest. Microseconds a batch, all taking turns in one process, first quartile, with {results['threads']} thread(s) each (one:",
        "processor time); memory is that of a process which has run 100 rows, and how much of it came with the model.",
        "",
        "| | file, bytes | batch 1 | batch 100 | batch 10 000 | process, MB | of it the model, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, name in NAMES.items():
        size = f"{results['files'].get(key, results['dense_bytes']):,}"
        times = " | ".join(f"{results['latency'][str(batch)][key]:,.1f}" for batch in BATCHES)
        whole, of_model = (results["memory"][key][part] / 1e6 for part in ("process", "model"))
        lines.append(f"| {name} | {size} | {times} | {whole:.0f} | {of_model:.1f} |")
    lines += [
        "",
        "(For the dense network: the bytes of its weights in float32.)",
        "",
        "| | measured | target | stretch target |",
        "|---|---|---|---|",
    ]
    asked = {
        "file": "file, as a share of the dense weights",
        "1": "batch 1, best of ours against best dense",
        "10000": "batch 10 000, best of ours against best dense",
        "step": "a step of post-training at 1% density, against a plain dense step",
    }
    for key, name in asked.items():
        must, want = ASKED[key]
        lines.append(f"| {name} | {made[key]:.4f} | {must:.2f} | {want:.2f} |")
    lines += [
        "",
        f"At the median model's own density a step costs {results['step']['median']:.2f}.",
        "",
        provenance(record),
    ]
    lines += ["", "## Dense or by rows", ""]
    lines += _rule_lines()
    return "\n".join([*lines, ""])


def _rule_lines() -> list[str]:
    path = RECORDS / "compact_rule.json"
    lines = [
        f"A linear layer is computed by rows, in C, if less than {SPARSE_BELOW:.0%} of it is left, else as a dense product. One of",
        f"fewer than {FEW:,} entries costs little either way and is taken by rows too: where all layers are, the whole network is",
        "one call of C. Time of one layer by rows as a multiple of the dense product's, calls from Python included:",
        "",
        "| layer | density | batch 1 | batch 100 | batch 10 000 |",
        "|---|---|---|---|---|",
    ]
    if not path.exists():
        return [*lines[:3], "", "Not measured yet."]
    record = json.loads(path.read_text("utf-8"))
    for row in record["results"]:
        shown = " | ".join(f"{row[str(batch)]:.2f}" for batch in BATCHES)
        lines.append(f"| {row['inputs']} x {row['units']} | {row['density']:.0%} | {shown} |")
    return [*lines, "", provenance(record)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compact", description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("mnist.slab"), help="the model; fitted if it is not there")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--rule", action="store_true", help="measure dense against by rows instead")
    parser.add_argument("--page", action="store_true", help="only make the page again")
    parser.add_argument(
        "--threads", type=int, default=1, help="for every runtime (default 1: steadier on a busy machine)"
    )
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    threadpool_limits(given.threads, "blas")  # numpy's own
    if given.rule:
        write_record(
            "compact_rule", f"python -m benchmarks.compact --rule --rounds {given.rounds}", SEED, rule(given.rounds)
        )
    elif not given.page:
        write_record(
            "compact",
            f"python -m benchmarks.compact --model {given.model.name} --rounds {given.rounds}",
            SEED,
            measure(given.model, given.rounds),
        )
    path = RECORDS / "compact.json"
    if path.exists():
        record = json.loads(path.read_text("utf-8"))
        write_page("deploy.md", page(record))
        print({name: round(value, 4) for name, value in ratios(record["results"]).items()})


if __name__ == "__main__":
    main()
