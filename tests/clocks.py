"""Finds Python code that uses zero, or another constant, as a moment of a monotonic clock.

A monotonic clock counts from the machine's boot, so "an hour before now" can be negative, and a "last time" that starts
at 0 is in the recent past on a machine that has just started. Write `None` or `-math.inf` for "never".

The search follows values inside one file. A moment is the result of a clock, a moment plus a duration, the earlier or
later of two moments, and every variable or attribute that is assigned a moment somewhere in the file. A name that ends
in `_at`, `_since` or `_until` counts as a moment wherever a float is assigned to it.
"""

import ast
import math
import re
from collections.abc import Iterator

__all__ = ["constant_moments"]

CLOCKS = frozenset({"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "current_time"})

MOMENT = re.compile(r"_(at|since|until)$")

Name = tuple[ast.AST | None, str]
"""The function or module of a variable, and its name. The first is None for an attribute, because the whole file shares
attributes."""

Given = tuple[ast.AST, ast.expr]
"""A variable, attribute, parameter or keyword, and the value that is assigned to it."""


def constant_moments(source: str) -> list[str]:
    """Returns a line such as `12: self._heard_at = 0.0` for each place, in order. Raises SyntaxError."""
    return [f"{line}: {text}" for line, text in sorted(set(_File(ast.parse(source)).wrong()))]


class _File:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._owners: dict[ast.AST, ast.AST] = {}
        self._own(tree, tree)
        self._given = list(_given(tree))
        self._clocks = set(CLOCKS)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "time":  # `from time import monotonic as clock`
                self._clocks |= {each.asname for each in node.names if each.name in CLOCKS and each.asname}
        for target, value in self._given:  # `clock = loop.time`
            if isinstance(target, ast.Name) and self._is_clock(value):
                self._clocks.add(target.id)
        self._moments: set[Name | None] = set()
        known = -1
        while known != len(self._moments):
            known = len(self._moments)
            self._moments |= {self._name(target) for target, value in self._given if self._is_moment(value)} - {None}
            self._moments |= {self._name(side) for side in self._beside_moments()} - {None}

    def _own(self, node: ast.AST, owner: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self._owners[child] = owner
            self._own(child, child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else owner)

    def _name(self, node: ast.AST) -> Name | None:
        if isinstance(node, ast.Subscript):  # a dictionary of moments: all its values are moments, whatever the key
            return self._name(node.value)
        if isinstance(node, ast.Attribute):
            return None, node.attr
        if isinstance(node, ast.keyword) and node.arg:  # of a class's constructor
            return None, node.arg
        return (self._owners[node], node.id) if isinstance(node, ast.Name) else None

    def _is_clock(self, node: ast.expr) -> bool:
        # the clock of an event loop; `time.time` is wall-clock time
        if isinstance(node, ast.Attribute) and node.attr == "time":
            return not (isinstance(node.value, ast.Name) and node.value.id == "time")
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return name in self._clocks

    def _is_moment(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
                return any(map(self._is_moment, node.args))
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                return self._name(node.func.value) in self._moments
            return not node.args and self._is_clock(node.func)
        if isinstance(node, ast.BinOp):
            left, right = self._is_moment(node.left), self._is_moment(node.right)
            return left != right if isinstance(node.op, ast.Add) else left and _is_duration(node.right)
        if isinstance(node, ast.IfExp | ast.BoolOp):
            return any(map(self._is_moment, _branches(node)))
        return self._name(node) in self._moments

    def _beside_moments(self) -> Iterator[ast.expr]:
        """Return the expressions that are compared with a moment, and those that are subtracted from a moment and are
        no durations."""
        for node in ast.walk(self._tree):
            sides = _sides(node)
            if any(map(self._is_moment, sides)):
                yield from (side for side in sides if not _is_duration(side))

    def wrong(self) -> Iterator[tuple[int, str]]:
        """Return the line and the text of each such expression."""
        for target, value in self._given:
            numbers = _numbers(value)
            is_named = any(isinstance(number, float) for number in numbers) and MOMENT.search(_last_word(target))
            if numbers and (is_named or self._name(target) in self._moments):
                yield value.lineno, f"{_last_word(target)} = {ast.unparse(value)}"
        for node in ast.walk(self._tree):
            sides = _sides(node)
            if any(map(self._is_moment, sides)) and any(_is_constant(node, side) for side in sides):
                yield sides[0].lineno, ast.unparse(node)


def _given(tree: ast.Module) -> Iterator[Given]:
    """Yield every assignment, default and keyword argument of the file; tuples are unpacked."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _apart(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                yield target, value
            case ast.keyword(value=value):
                yield node, value
            case ast.arguments():
                named = [*node.posonlyargs, *node.args]
                yield from zip(named[len(named) - len(node.defaults) :], node.defaults, strict=True)
                yield from ((arg, value) for arg, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value)


def _apart(target: ast.expr, value: ast.expr) -> Iterator[Given]:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
        default = value.args[-1] if len(value.args) == 2 else None
        if isinstance(target, ast.Tuple) and isinstance(default, ast.Tuple):
            value = default
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for each, part in zip(target.elts, value.elts, strict=True):
            yield from _apart(each, part)
    else:
        yield target, value


def _branches(node: ast.IfExp | ast.BoolOp) -> list[ast.expr]:
    return node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]


def _numbers(node: ast.expr) -> list[float]:
    """Return the finite constants that an expression may have as its value."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and math.isfinite(number):
            return [number]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _numbers(operand)
        case ast.IfExp() | ast.BoolOp():
            return [number for branch in _branches(node) for number in _numbers(branch)]
        case ast.Call(func=ast.Attribute(attr="get"), args=[_, default]):
            return _numbers(default)
    return []


def _is_duration(node: ast.expr) -> bool:
    """Return whether an expression is a number of seconds, judged by its name. Other expressions that are subtracted
    may be earlier moments."""
    word = _last_word(node)
    return bool(_numbers(node)) or word.isupper() or word.endswith("seconds")


def _sides(node: ast.AST) -> list[ast.expr]:
    """Return both sides of an ordering comparison or of a difference; nothing for other expressions."""
    match node:
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE(), *_], comparators=others):
            return [left, *others]
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return [left, right]
    return []


def _is_constant(node: ast.AST, side: ast.expr) -> bool:
    """Return whether an expression is a constant to compare with, or a dictionary's default for a missing key."""
    if isinstance(node, ast.Compare) and (_numbers(side) or (isinstance(side, ast.Name) and side.id.isupper())):
        return True
    return any(isinstance(part, ast.Call) and _numbers(part) for part in ast.walk(side))


def _last_word(target: ast.AST) -> str:
    match target:
        case ast.Attribute(attr=word) | ast.Name(id=word) | ast.arg(arg=word) | ast.keyword(arg=str() as word):
            return word
        case ast.Subscript(value=value):
            return _last_word(value)
    return ""
