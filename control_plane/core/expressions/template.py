"""Mappings: JSON trees in which strings hold `${ … }` expressions.

A string that is wholly one `${ … }` keeps the type of its value; inside a longer string
the value is written as text. `$${` stands for a literal `${`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, TypeAlias, Union

from control_plane.core.expressions.errors import ExpressionFailedError, ExpressionInvalidError
from control_plane.core.expressions.lexer import References, closing_brace, references
from control_plane.core.expressions.ports import CompiledExpression, ExpressionCompiler
from control_plane.core.expressions.values import JsonValue, longest_list, to_json
from control_plane.limits import DOCUMENT_BYTES_MAX

EXPRESSION_CHARS_MAX: Final = 4_096
# map and filter copy their list for each item, holding the interpreter: 2,000 items take
# about 0.2 s and 10,000 more than 5 s. A longer list fans out with for_each instead.
BUILT_LIST_ITEMS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression together with what it reads."""

    compiled: CompiledExpression
    reads: References

    @property
    def source(self) -> str:
        """The text between `${` and `}`."""
        return self.compiled.source

    def evaluate(self, variables: Mapping[str, JsonValue]) -> JsonValue:
        """Return its value; raise ExpressionFailedError when it has none."""
        if self.reads.builds_lists:
            self._check_list_lengths(variables)
        return self.compiled.evaluate(variables)

    def _check_list_lengths(self, variables: Mapping[str, JsonValue]) -> None:
        longest = max((longest_list(variables.get(one)) for one in self.reads.names), default=0)
        if longest > BUILT_LIST_ITEMS_MAX:
            raise ExpressionFailedError(
                self.source,
                f"map and filter take documents with lists of at most {BUILT_LIST_ITEMS_MAX} "
                f"items, and one here has {longest}: use for_each",
            )


@dataclass(frozen=True, slots=True)
class _Interpolated:
    parts: tuple[str | Expression, ...]


_Node: TypeAlias = Union[
    "_Literal", Expression, _Interpolated, "tuple[_Node, ...]", "dict[str, _Node]"
]


@dataclass(frozen=True, slots=True)
class _Literal:
    value: JsonValue


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled mapping."""

    root: _Node
    reads: References

    def render(self, variables: Mapping[str, JsonValue]) -> str:
        """Return the mapped document as JSON text.

        Raises ExpressionFailedError when an expression fails or the document grows over
        its bound.
        """
        text = to_json(_rendered(self.root, variables))
        size_bytes = len(text.encode(errors="surrogatepass"))
        if size_bytes > DOCUMENT_BYTES_MAX:
            raise ExpressionFailedError(
                "mapping",
                f"the mapped document has {size_bytes} bytes, more than the "
                f"{DOCUMENT_BYTES_MAX} allowed: pass references instead of contents",
            )
        return text


def compile_expression(source: str, compiler: ExpressionCompiler, *, per_item: bool) -> Expression:
    """Compile one expression, given with or without its `${ }`.

    Raises ExpressionInvalidError when it is empty, too long or does not compile.
    """
    bare = _unwrapped(source)
    if not bare.strip():
        raise ExpressionInvalidError("the expression is empty: write one, or leave the key out")
    if len(bare) > EXPRESSION_CHARS_MAX:
        raise ExpressionInvalidError(
            f"the expression has {len(bare)} characters, more than {EXPRESSION_CHARS_MAX}"
        )
    if "\0" in bare:
        raise ExpressionInvalidError("the expression has a NUL character in it: remove it")
    reads = references(bare)
    return Expression(compiler.compile(bare, per_item=per_item), reads)


def compile_template(tree: JsonValue, compiler: ExpressionCompiler, *, per_item: bool) -> Template:
    """Compile a mapping; raise ExpressionInvalidError for the first expression that is wrong."""
    root = _compiled(tree, compiler, per_item=per_item)
    return Template(root, reduce(or_, _all_reads(root), References()))


def _compiled(tree: JsonValue, compiler: ExpressionCompiler, *, per_item: bool) -> _Node:
    # Recursion is safe: documents are bounded to 64 levels where they are read.
    if isinstance(tree, str):
        return _compiled_text(tree, compiler, per_item=per_item)
    if isinstance(tree, Mapping):
        fields = {key: _compiled(child, compiler, per_item=per_item) for key, child in tree.items()}
        constant = all(isinstance(child, _Literal) for child in fields.values())
        return _Literal(tree) if constant else fields
    if isinstance(tree, Sequence):
        items = tuple(_compiled(child, compiler, per_item=per_item) for child in tree)
        constant = all(isinstance(child, _Literal) for child in items)
        return _Literal(tree) if constant else items
    return _Literal(tree)


def _compiled_text(text: str, compiler: ExpressionCompiler, *, per_item: bool) -> _Node:
    parts = [
        part
        if isinstance(part, str)
        else compile_expression(part.source, compiler, per_item=per_item)
        for part in _split(text)
    ]
    if len(parts) == 1 and isinstance(parts[0], Expression):
        return parts[0]
    if all(isinstance(part, str) for part in parts):
        return _Literal("".join(part for part in parts if isinstance(part, str)))
    return _Interpolated(tuple(parts))


@dataclass(frozen=True, slots=True)
class _Source:
    source: str


def _split(text: str) -> Iterator[str | _Source]:
    position = 0
    while (start := text.find("${", position)) >= 0:
        escaped = text.startswith("$", start - 1) and start > position
        if escaped:
            yield text[position : start - 1] + "${"
            position = start + 2
            continue
        if start > position:
            yield text[position:start]
        position = closing_brace(text, start + 2)
        yield _Source(text[start + 2 : position - 1])
    if position < len(text):
        yield text[position:]


def _unwrapped(source: str) -> str:
    text = source.strip()
    if text.startswith("${") and closing_brace(text, 2) == len(text):
        return text[2:-1]
    return source


def _all_reads(node: _Node) -> Iterator[References]:
    match node:
        case Expression():
            yield node.reads
        case _Interpolated(parts):
            yield from (part.reads for part in parts if isinstance(part, Expression))
        case dict():
            for child in node.values():
                yield from _all_reads(child)
        case tuple():
            for child in node:
                yield from _all_reads(child)
        case _Literal():
            return


def _rendered(node: _Node, variables: Mapping[str, JsonValue]) -> JsonValue:
    match node:
        case _Literal(value):
            return value
        case Expression():
            return node.evaluate(variables)
        case _Interpolated(parts):
            return "".join(
                part if isinstance(part, str) else _as_text(part.evaluate(variables))
                for part in parts
            )
        case dict():
            return {key: _rendered(child, variables) for key, child in node.items()}
        case tuple():
            return [_rendered(child, variables) for child in node]


def _as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else to_json(value)
