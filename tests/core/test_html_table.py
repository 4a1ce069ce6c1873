"""Records in notebooks: tables that hold what they should, with every text escaped."""

from __future__ import annotations

import re

import torch

import slabnet as sn
from slabnet.core.html_table import MOST_ROWS, html_table, some


def rows_of(page: str) -> list[list[str]]:
    return [re.findall(r"<t[dh]>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]


def test_long_tables_say_what_is_left_out_and_texts_are_escaped() -> None:
    page = html_table("<b>", ["<i>"], [["&", i] for i in range(50)])
    assert "<b>" not in page
    assert "<i>" not in page
    assert page.endswith("and 40 rows more</p>")
    assert len(rows_of(page)) == 1 + MOST_ROWS
    assert some(7) == list(range(7))


def test_networks_selections_predictions_histories_and_estimators_show_themselves() -> None:
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    net = sn.mlp((3, 4, 2))
    history = sn.fit(net, (x, (x[:, 0] > 0).long()), sn.TrainConfig(epochs=3, batch_size=10), progress="off")
    chosen, answer = sn.median_model(net), sn.predict(net, x, draws=5)
    assert [row[-1] for row in rows_of(net._repr_html_())] == ["weights", "12", "8"]
    assert rows_of(chosen._repr_html_())[-1][:3] == ["all", "20", str(chosen.total.median_weights)]
    told = rows_of(answer._repr_html_())
    assert told[1][1] == str(int(answer.labels[0]))
    assert "and 30 rows more" in answer._repr_html_()
    assert [row[0] for row in rows_of(history._repr_html_())] == ["epoch", "1", "2", "3"]

    model = sn.SlabRegressor(hidden=(), epochs=3).fit(x.numpy(), x[:, 0].numpy())
    assert "SlabRegressor" in model._repr_html_()
    numbers = sn.predict(model.network_, x.double(), draws=5)
    assert rows_of(numbers._repr_html_())[0][1] == "mean"
    yes = sn.predict(sn.mlp((3, 2), likelihood="bernoulli"), x, draws=5)
    assert ", " in rows_of(yes._repr_html_())[1][1]
