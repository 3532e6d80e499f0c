"""The reference network as an ONNX graph, node by node: no exporter in between, a free batch axis, constants as initialisers."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from inference.runtime import INPUT, OUTPUT
from inference.workshop.network import ForecastNetwork

_OPSET = 17


def export(network: ForecastNetwork, steps: int, features: int) -> bytes:
    """The network as an ONNX file: `window [batch, steps, features]` to `prediction [batch, outputs]`.

    Raises:
        ValueError: The graph is not valid.
    """
    hidden, outputs = network.lstm.hidden_size, network.linear.out_features
    constants = {
        "linear_weight": _array(network.linear.weight),
        "linear_bias": _array(network.linear.bias),
        "head_weight": _array(network.head.weight),
        "head_bias": _array(network.head.bias),
        "first_axis": np.array([0], np.int64),
    }
    nodes: list[Any] = [
        helper.make_node("Flatten", [INPUT], ["flat"], axis=1),
        helper.make_node("Gemm", ["flat", "linear_weight", "linear_bias"], ["straight"], transB=1),
        helper.make_node("Transpose", [INPUT], ["layer_0"], perm=[1, 0, 2]),
    ]
    layers = network.lstm.num_layers
    for layer in range(layers):
        constants |= _lstm_constants(network.lstm, layer)
        inputs = [f"layer_{layer}", f"W_{layer}", f"R_{layer}", f"B_{layer}"]
        nodes.append(helper.make_node("LSTM", inputs, [f"sequence_{layer}", f"state_{layer}"], hidden_size=hidden))
        if layer < layers - 1:
            constants["direction_axis"] = np.array([1], np.int64)
            nodes.append(helper.make_node("Squeeze", [f"sequence_{layer}", "direction_axis"], [f"layer_{layer + 1}"]))
    nodes += [
        helper.make_node("Squeeze", [f"state_{layers - 1}", "first_axis"], ["state"]),
        helper.make_node("Gemm", ["state", "head_weight", "head_bias"], ["recurrent"], transB=1),
        helper.make_node("Add", ["straight", "recurrent"], [OUTPUT]),
    ]
    graph = helper.make_graph(
        nodes,
        "forecast",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", steps, features])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", outputs])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="lineside", ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _array(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    array: npt.NDArray[np.float32] = tensor.detach().numpy().astype(np.float32)
    # Weights this small cost time as denormals and change nothing.
    return np.where(np.abs(array) < 1e-30, np.float32(0), array)


def _lstm_constants(lstm: torch.nn.LSTM, layer: int) -> dict[str, npt.NDArray[Any]]:
    """Weights of one layer; torch orders the gates i, f, g, o, ONNX i, o, f, c."""

    def reordered(name: str) -> npt.NDArray[np.float32]:
        i, f, g, o = np.split(_array(getattr(lstm, f"{name}_l{layer}")), 4)
        return np.concatenate([i, o, f, g])[None]

    bias = np.concatenate([reordered("bias_ih"), reordered("bias_hh")], axis=1)
    return {f"W_{layer}": reordered("weight_ih"), f"R_{layer}": reordered("weight_hh"), f"B_{layer}": bias}
