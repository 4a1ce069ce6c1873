"""Runs an exported network with numpy alone: x in, a dictionary of arrays out."""

import base64
import json
import math

import numpy as np

_PADDING = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _decode(value):
    """Arrays from their text; matrices come by rows, without their zeros."""
    if isinstance(value, list):
        return [_decode(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "text" in value:
        flat = np.frombuffer(base64.b85decode(value["text"]), value["type"])
        return flat.astype(value["type"][1:]).reshape(value["shape"])
    if "left" in value:
        dense = np.zeros(math.prod(value["of"]), np.float32)
        dense[np.cumsum(_decode(value["gaps"]).astype(np.int64))] = _decode(value["left"])
        return dense.reshape(value["of"])
    return {key: _decode(part) for key, part in value.items()}


def _windows(x, kernel, stride, dilation):
    """(rows, channels, *positions, *kernel): what a kernel sees at each position."""
    axes = tuple(range(2, x.ndim))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    seen = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    moves = tuple(slice(None, None, s) for s in stride)
    inside = tuple(slice(None, None, d) for d in dilation)
    return seen[(slice(None), slice(None), *moves, *inside)]


def _conv(step, x):
    pads = [(0, 0), (0, 0), *(tuple(pair) for pair in step["pads"])]
    if any(a or b for a, b in pads):
        x = np.pad(x, pads, mode=_PADDING[step["padding_mode"]])
    weight = step["weight"]
    seen = _windows(x, weight.shape[2:], step["stride"], step["dilation"])
    kernel = len(weight.shape) - 2
    inner = [1, *range(seen.ndim - kernel, seen.ndim)]
    out = np.tensordot(seen, weight, (inner, list(range(1, weight.ndim))))
    return np.moveaxis(out, -1, 1) + step["bias"].reshape(-1, *[1] * kernel)


def _pool(step, x, largest):
    kernel = step["kernel_size"]
    pads = [(0, 0), (0, 0), *((p, p) for p in step["padding"])]
    x = np.pad(x, pads, constant_values=-np.inf if largest else 0.0)
    seen = _windows(x, kernel, step["stride"], step.get("dilation", [1] * len(kernel)))
    axes = tuple(range(seen.ndim - len(kernel), seen.ndim))
    return seen.max(axes) if largest else seen.mean(axes, dtype=np.float32)


def _mixed(step, x):
    parts = np.split(x, np.cumsum(step["counts"])[:-1], axis=1)
    return np.concatenate([_STEPS[of["kind"]](of, part) for of, part in zip(step["steps"], parts)], axis=1)


def _sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


_erf = np.vectorize(math.erf, otypes=[np.float32])  # numpy has none

_STEPS = {  # activations are written behind this file, those that the network has
    "maxpool": lambda step, x: _pool(step, x, True),
    "avgpool": lambda step, x: _pool(step, x, False),
    "flatten": lambda step, x: x.reshape(len(x), -1),
    "take": lambda step, x: np.take(x, step["index"], axis=step["dim"]),
    "linear": lambda step, x: x @ step["weight"].T + step["bias"],
    "conv": _conv,
    "mixed": _mixed,
}


def _run(steps, x):
    again = x
    for step in steps:
        if step["kind"] == "fork":
            again = x
        elif step["kind"] == "join":
            x = np.concatenate([x, again], axis=1)
        else:
            x = _STEPS[step["kind"]](step, x)
    return x


def _mean(parts):
    return sum(parts) / np.float32(len(parts))


def _information(p):
    return -p * np.log(np.maximum(p, np.float32(1e-38)))


def _softmax(outputs, about):
    raised = [np.exp(one - one.max(-1, keepdims=True)) for one in outputs]
    p = _mean([one / one.sum(-1, keepdims=True) for one in raised])
    return {"probabilities": p, "entropy": _information(p).sum(-1)}


def _yes_or_no(outputs, about):
    p = _mean([_sigmoid(one) for one in outputs])
    return {"probabilities": p, "entropy": _information(p) + _information(1 - p)}


def _normal(outputs, about):
    mean, noise = _mean(outputs), np.asarray(about["noise"], np.float32)
    return {"mean": mean, "variance": _mean([(one - mean) ** 2 for one in outputs]) + noise}


def _ordinal(outputs, about):
    cuts = np.asarray(about["cuts"], np.float32)
    inner = np.concatenate([[1], -np.expm1(cuts[:-1] - cuts[1:]), [1]]).astype(np.float32)
    parts = []
    for one in outputs:
        sure = np.ones_like(one)
        below, above = _sigmoid(cuts - one), _sigmoid(one - cuts)
        parts.append(np.concatenate([below, sure], 1) * np.concatenate([sure, above], 1) * inner)
    p = _mean(parts)
    return {"probabilities": p, "entropy": _information(p).sum(-1)}


def _own_noise(outputs, about):
    pairs = [np.split(one, 2, axis=-1) for one in outputs]
    mean = _mean([centre for centre, _ in pairs])
    spread = _mean([(centre - mean) ** 2 for centre, _ in pairs])
    return {"mean": mean, "variance": spread + _mean([np.exp(log) for _, log in pairs])}


def _positive(outputs, about):
    means, noise = [np.exp(one) for one in outputs], np.asarray(about["noise"], np.float32)
    mean = _mean(means)
    counted = mean if about["head"] != "gamma" else np.float32(0)  # counts vary by their mean too
    spread = _mean([(one - mean) ** 2 for one in means])
    return {"mean": mean, "variance": spread + counted + noise * _mean([one**2 for one in means])}


def _median(outputs, about):
    mean, noise = _mean(outputs), np.asarray(about["noise"], np.float32)
    spread = _mean([(one - mean) ** 2 for one in outputs])
    if len(outputs) == 1:
        return {"median": np.exp(mean), "log_variance": spread + noise}
    each = np.asarray(about["dispersions"], np.float32)
    if about["head"] == "lognormal":
        medians, below = outputs, [_normal_below(one, np.sqrt(phi)) for one, phi in zip(outputs, each)]
    else:
        medians = [one + np.float32(math.log(math.log(2))) / shape for one, shape in zip(outputs, each)]
        below = [_weibull_below(one, shape) for one, shape in zip(outputs, each)]
    low, high = np.minimum.reduce(medians), np.maximum.reduce(medians)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        under = _mean([part(middle) for part in below]) < 0.5
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return {"median": np.exp((low + high) / 2), "log_variance": spread + noise}


def _normal_below(centre, sd):
    return lambda t: 0.5 * (1 + _erf((t - centre) / (sd * np.float32(math.sqrt(2)))))


def _weibull_below(centre, shape):
    return lambda t: -np.expm1(-np.exp(shape * (t - centre)))


_HALVINGS = 30
_HEADS = {
    "softmax": _softmax,
    "sigmoid": _yes_or_no,
    "ordinal": _ordinal,
    "normal": _normal,
    "student-t": _normal,
    "heteroscedastic": _own_noise,
    "poisson": _positive,
    "negative-binomial": _positive,
    "gamma": _positive,
    "lognormal": _median,
    "weibull": _median,
}


def _predict(plan, x):
    x = np.asarray(x, dtype=np.float32)
    about = plan["about"]
    shape = about["shape"]
    if x.ndim < 2 or math.prod(x.shape[1:]) != math.prod(shape):
        raise ValueError(f"x must be rows of {' x '.join(map(str, shape))} numbers, got shape {x.shape}")
    x = x.reshape(len(x), *shape)
    if plan["means"] is not None:
        x = (x - plan["means"].reshape(shape)) / plan["scales"].reshape(shape)
    outputs = [_run(steps, x) for steps in plan["networks"]]
    answer = _HEADS[about["head"]](outputs, about)
    return {"logits": outputs[0], **answer} if "logits" in plan["gives"] else answer


def _load(text):
    return _decode(json.loads(text))
