"""What one training step costs, as a multiple of a plain network's: `python -m benchmarks.step_time --json`.

All candidates take turns in one process, so that a busy machine slows them all; each is told by the first quartile of
its rounds. `--training` times a whole default training on MNIST against a plain network trained for as many epochs,
`--averaging` model averaging against as many deterministic passes. `--record` keeps the numbers for docs/speed.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import slabnet as sn
from benchmarks.peers import Step, peers
from benchmarks.record import RECORDS, write_record
from slabnet import kernels
from slabnet.kernels.fused import gradients_to
from slabnet.model.drawing import Draw, drawable_layers
from slabnet.model.elbo import elbo
from slabnet.training.optimiser import make_optimiser

SIZES, BATCH, N, SEED = (784, 400, 600, 10), 100, 60_000, 0
WANTED = {"local": 2.2, "relaxed": 1.9, "straight_through": 1.9, "gaussian_local": 2.1, "gaussian_drawn": 1.6}
MUST = {"local": 2.5, "relaxed": 2.3, "straight_through": 2.3, "gaussian_local": 2.4, "gaussian_drawn": 1.9}
MUST |= {"training": 2.5, "averaging": 1.5}
WANTED |= {"training": 1.2, "averaging": 1.2}


def plain_network(sizes: tuple[int, ...] = SIZES) -> nn.Sequential:
    """The deterministic network everything is measured against."""
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def plain_step(net: nn.Module) -> Step:
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def step(x: Tensor, y: Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def our_step(method: str, draw: Draw, sizes: tuple[int, ...] = SIZES, passes: kernels.native.Passes = "auto") -> Step:
    """One step as `fit` makes it: the bound of a batch, backward, Adam with a step size for omega."""
    net = sn.mlp(sizes, method=method, seed=SEED)
    optimiser = make_optimiser(net, net.likelihood, sn.TrainConfig(), omega=True)
    noise = torch.Generator().manual_seed(SEED)
    net.train()
    layers = drawable_layers(net)
    if passes == "auto":
        optimiser.defer(layers.values())

    def step(x: Tensor, y: Tensor) -> None:
        with kernels.passes(passes), gradients_to(optimiser):
            terms = elbo(net, net.likelihood, x, y, n=N, draw=draw, seed=noise, layers=layers)
            optimiser.zero_grad(set_to_none=True)
            (terms.kl - terms.log_likelihood).backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    return step


def interleaved(candidates: dict[str, Callable[[], Any]], rounds: int, warm: int = 5) -> dict[str, float]:
    """First quartile, in seconds, of each candidate's rounds, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(warm + rounds):
        for name, run in candidates.items():
            started = time.perf_counter()
            run()
            if turn >= warm:
                times[name].append(time.perf_counter() - started)
    return {name: sorted(seen)[len(seen) // 4] for name, seen in times.items()}


def steps(rounds: int, with_peers: bool = True) -> dict[str, Any]:
    """The cost of a step of each candidate, as a multiple of the deterministic one."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.rand(BATCH, SIZES[0], generator=generator)
    y = torch.randint(0, SIZES[-1], (BATCH,), generator=generator)
    made: dict[str, Step] = {
        "deterministic": plain_step(plain_network()),
        "local": our_step("lbbnn", sn.local),
        "relaxed": our_step("lbbnn", sn.relaxed(0.5)),
        "straight_through": our_step("lbbnn", sn.straight_through(0.5)),
        "gaussian_local": our_step("gaussian", sn.local),
        "gaussian_drawn": our_step("gaussian", sn.relaxed(0.5)),
        "torch_reference": our_step("lbbnn", sn.local, passes="torch"),
    }
    missing: dict[str, str] = {}
    if with_peers:
        others, missing = peers(SIZES, N)
        made |= others
    seconds = interleaved({name: _bind(step, x, y) for name, step in made.items()}, rounds)
    ratios: dict[str, Any] = {name: round(value / seconds["deterministic"], 3) for name, value in seconds.items()}
    ratios |= {name: f"missing: {why}" for name, why in missing.items()}
    return ratios


def _bind(step: Step, x: Tensor, y: Tensor) -> Callable[[], Any]:
    return lambda: step(x, y)


def averaging(rounds: int) -> dict[str, Any]:
    """Model averaging with ten draws of 10 000 rows, against ten deterministic passes."""
    x = torch.rand(10_000, SIZES[0], generator=torch.Generator().manual_seed(SEED))
    plain, net = plain_network(), sn.mlp(SIZES, seed=SEED)

    def passes() -> None:
        with torch.no_grad():
            for _ in range(10):
                for part in x.split(1000):  # type: ignore[no-untyped-call]
                    torch.softmax(plain(part), -1)

    seconds = interleaved(
        {"deterministic": passes, "averaging": lambda: sn.predict(net, x, draws=10, seed=SEED)}, rounds, warm=2
    )
    return {"averaging": round(seconds["averaging"] / seconds["deterministic"], 3)}


def training(epochs: int | None) -> dict[str, Any]:
    """A whole default training on MNIST; a plain network trains an epoch after each of ours, on the same data."""
    from slabnet.data import load

    x, y = load("mnist").train
    step = plain_step(plain_network())
    plain_seconds: list[float] = []

    def plain_epoch(_: Any) -> None:
        started = time.perf_counter()
        for rows in torch.randperm(len(x)).split(BATCH):  # type: ignore[no-untyped-call]
            step(x[rows], y[rows])
        plain_seconds.append(time.perf_counter() - started)

    net = sn.mlp(SIZES, seed=SEED)
    history = sn.fit(net, (x, y), sn.TrainConfig(epochs=epochs), on_epoch=plain_epoch, progress="lines")
    ours = [epoch.seconds for epoch in history]
    ratios = [round(a / b, 3) for a, b in zip(ours, plain_seconds, strict=True)]
    return {"training": round(sum(ours) / sum(plain_seconds), 3), "epochs": len(ours), "ratio_by_epoch": ratios}


def table(results: dict[str, Any]) -> str:
    """The numbers for a reader: what was measured, what is asked of it."""
    lines = [f"{'':20}{'x plain':>9}{'must':>7}{'want':>7}"]
    for name, value in results.items():
        if not isinstance(value, float):
            lines += [f"{name:20}  {value}"] if isinstance(value, str) else []
            continue
        asked = "".join(f"{limits[name]:7.1f}" if name in limits else " " * 7 for limits in (MUST, WANTED))
        lines.append(f"{name:20}{value:9.2f}{asked}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_time", description=__doc__)
    parser.add_argument("--json", action="store_true", help="JSON on stdout, the table on stderr")
    parser.add_argument("--rounds", type=int, default=100, help="rounds that count, at least 60 (default 100)")
    parser.add_argument("--training", action="store_true", help="a whole default training on MNIST (minutes)")
    parser.add_argument("--averaging", action="store_true", help="model averaging of 10 000 rows")
    parser.add_argument("--epochs", type=int, default=None, help="with --training: fewer epochs than the default")
    parser.add_argument("--no-peers", action="store_true", help="leave the other libraries out")
    parser.add_argument("--record", action="store_true", help="keep the numbers for the docs page")
    given = parser.parse_args(arguments)
    if given.rounds < 60:
        parser.error(f"--rounds must be at least 60, got {given.rounds}")
    if given.training:
        name, results = "step_time_training", training(given.epochs)
    elif given.averaging:
        name, results = "step_time_averaging", averaging(max(60, given.rounds) if given.json else 20)
    else:
        name, results = "step_time", steps(given.rounds, not given.no_peers)
    print(table(results), file=sys.stderr if given.json else sys.stdout)
    if given.json:
        print(json.dumps(results))
    if given.record:
        command = "python -m benchmarks.step_time" + "".join(
            f" --{flag}" for flag in ("training", "averaging") if getattr(given, flag)
        )
        write_record(name, command, SEED, results | {"rounds": given.rounds, "variant": kernels.variant()})
        print(f"kept in {Path(RECORDS, name).with_suffix('.json').name}", file=sys.stderr)


if __name__ == "__main__":
    main()
