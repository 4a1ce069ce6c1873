from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import cohen_kappa_score

import slabnet as sn
from slabnet.selection.rules import threshold_model


def test_stability_counts_and_corrects_for_chance() -> None:
    nets = [sn.mlp((6, 5, 3), seed=s) for s in range(3)]
    for seed, net in enumerate(nets):
        with torch.no_grad():
            net.body[1].weight.omega.normal_(0, 1, generator=torch.Generator().manual_seed(seed))
            net.body[3].weight.omega.normal_(0, 1, generator=torch.Generator().manual_seed(seed + 10))
    found = sn.stability(nets)
    flat = [torch.cat([m[0].flatten() for m in threshold_model(n).masks.values()]).numpy() for n in nets]
    wanted = np.mean([cohen_kappa_score(flat[a], flat[b]) for a, b in ((0, 1), (0, 2), (1, 2))])
    assert found.kappa_weights == pytest.approx(wanted)
    assert set(found.weights["body.1"].flatten().tolist()) <= {0.0, 1 / 3, 2 / 3, 1.0}
    same = sn.stability([nets[0], nets[0]])
    assert same.kappa_weights == 1.0
    assert same.kappa_inputs == 1.0
    with pytest.raises(sn.ArgumentError, match="at least two fitted networks, got 1"):
        sn.stability(nets[:1])
    with pytest.raises(sn.ArgumentError, match="networks of one architecture"):
        sn.stability([nets[0], sn.mlp((6, 4, 3))])
