"""The expression that says when a machine is running, over whole columns of signals."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gateway.core.errors import ConfigError

Columns = npt.NDArray[Any]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.divide,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class Enable:
    """A compiled expression such as `current > 0.5 and flow > 1`.

    Names, numbers, comparisons, `and`, `or`, `not` and `+ - * /` are allowed, nothing else. A comparison with NaN is false.

    Raises:
        ConfigError: It is no such expression.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text, mode="eval").body if text.strip() else ast.Constant(value=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ConfigError(f"enable: '{text}' is not an expression", remedy="write it like: current > 0.5 and flow > 1") from error
        self.names = frozenset(node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        _check(self._tree, text)

    def __call__(self, signals: Mapping[str, npt.NDArray[np.float64]], rows: int) -> npt.NDArray[np.bool_]:
        """Truth for each asset, `bool[rows]`; `signals` holds `float64[rows]` by name."""
        with np.errstate(all="ignore"):
            value = _evaluate(self._tree, signals)
        return np.broadcast_to(np.asarray(value, np.bool_), (rows,)).copy()


def _check(node: ast.expr, text: str) -> None:
    match node:
        case ast.Name() | ast.Constant(value=bool() | int() | float()):
            return
        case ast.BoolOp(values=values):
            parts = values
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            parts = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARE for op in ops):
            parts = [left, *comparators]
        case _:
            raise ConfigError(
                f"enable: '{ast.unparse(node)}' is not allowed in '{text}'",
                remedy="use signal names, numbers, comparisons, and, or, not, + - * /",
            )
    for part in parts:
        _check(part, text)


def _evaluate(node: ast.expr, signals: Mapping[str, npt.NDArray[np.float64]]) -> Any:  # noqa: ANN401 - a column or a scalar
    match node:
        case ast.Name(id=name):
            return signals[name]
        case ast.Constant(value=value):
            return value
        case ast.BoolOp(op=op, values=values):
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            result = _evaluate(values[0], signals)
            for part in values[1:]:
                result = join(result, _evaluate(part, signals))
            return result
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return np.logical_not(_evaluate(operand, signals))
        case ast.UnaryOp(operand=operand):
            return np.negative(_evaluate(operand, signals))
        case ast.BinOp(left=left, op=operation, right=right):
            return _BINARY[type(operation)](_evaluate(left, signals), _evaluate(right, signals))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            result, before = np.True_, _evaluate(left, signals)
            for comparison, comparator in zip(ops, comparators, strict=True):
                after = _evaluate(comparator, signals)
                result = np.logical_and(result, _COMPARE[type(comparison)](before, after))
                before = after
            return result
    raise AssertionError(ast.dump(node))  # _check has refused everything else
