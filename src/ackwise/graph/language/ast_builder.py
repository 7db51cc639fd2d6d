"""Converts Lark's parse tree to the syntax tree."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any, cast

from lark import Token, Tree

from ackwise.graph import ast as s
from ackwise.graph.errors import At, GraphError
from ackwise.graph.language.durations import instant, milliseconds

Children = list[Any]
MOST = 2**63 - 1


def _unquoted(text: str, at: At) -> str:
    try:
        value = json.loads(text.replace("\t", "\\t"))
        assert isinstance(value, str)
        value.encode("utf-8")
    except (ValueError, AssertionError):
        raise GraphError("parse_error", "this string has an escape that is not known", at=at) from None
    if "\0" in value:
        raise GraphError("parse_error", "a string must not contain NUL", at=at)
    return value


class Builder:
    """Builds syntax nodes, with one method per rule of the grammar. Columns are named by their source text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def build(self, tree: Tree[Token] | Token) -> Any:
        if isinstance(tree, Token):
            return tree
        method: Callable[[Tree[Token], Children], Any] | None = getattr(self, "_" + tree.data, None)
        children = [self.build(child) for child in tree.children]
        return method(tree, children) if method is not None else self._folded(tree, children)

    def _source(self, tree: Tree[Token]) -> str:
        return " ".join(self._text[tree.meta.start_pos : tree.meta.end_pos].split())

    # literals and names

    def _string(self, tree: Tree[Token], c: Children) -> s.Literal:
        return s.Literal("string", _unquoted(c[0], _at(tree)))

    def _int(self, tree: Tree[Token], c: Children) -> s.Literal:
        value = int(c[0])
        if value > MOST:
            raise GraphError("parse_error", "this number does not fit into 64 bits", at=_at(tree))
        return s.Literal("int", value)

    def _float(self, tree: Tree[Token], c: Children) -> s.Literal:
        value = float(c[0])
        if not isfinite(value):
            raise GraphError("parse_error", "this number is too large for a Float", at=_at(tree))
        return s.Literal("float", value)

    def _bool(self, tree: Tree[Token], c: Children) -> s.Literal:
        return s.Literal("bool", c[0].lower() == "true")

    def _null(self, tree: Tree[Token], c: Children) -> s.Literal:
        return s.Literal("null", None)

    def _duration(self, tree: Tree[Token], c: Children) -> s.Literal:
        return s.Literal("duration", milliseconds(c[0]), str(c[0]))

    def _timestamp(self, tree: Tree[Token], c: Children) -> s.Literal:
        try:
            return s.Literal("timestamp", instant(c[0][1:]), str(c[0]))
        except ValueError:
            raise GraphError("parse_error", f"{c[0]} is not a moment", at=_at(tree)) from None

    def _name(self, tree: Tree[Token], c: Children) -> s.Name | s.Wild:
        return s.Wild() if c[0] == "_" else s.Name(str(c[0]), _at(tree))

    def _param(self, tree: Tree[Token], c: Children) -> s.Param:
        text = str(c[0])[1:]
        return s.Param(text.removesuffix("?"), text.endswith("?"), _at(tree))

    def _id_ref(self, tree: Tree[Token], c: Children) -> s.IdRef:
        text = str(c[0])[1:]
        name = _unquoted(text, _at(tree)) if text.startswith('"') else text
        return s.IdRef(name, "#" + text, _at(tree))

    # expressions

    def _negated(self, tree: Tree[Token], c: Children) -> s.Unary:
        return s.Unary("not", c[1])

    def _negative(self, tree: Tree[Token], c: Children) -> s.Expr:
        of = c[1]
        if isinstance(of, s.Literal) and isinstance(of.value, int | float) and not isinstance(of.value, bool):
            return s.Literal(of.kind, -of.value, of.text and "-" + of.text)
        return s.Unary("-", of)

    def _compared(self, tree: Tree[Token], c: Children) -> s.Binary:
        return s.Binary(str(c[1]), c[0], c[2], _at(tree))

    def _equal(self, tree: Tree[Token], c: Children) -> s.Binary:
        return s.Binary("=", c[0], c[1], _at(tree))

    def _contained(self, tree: Tree[Token], c: Children) -> s.Binary:
        return s.Binary("in", c[0], c[2], _at(tree))

    def _text_test(self, tree: Tree[Token], c: Children) -> s.Binary:
        return s.Binary(" ".join(str(c[1]).lower().split()), c[0], c[2], _at(tree))

    def _null_check(self, tree: Tree[Token], c: Children) -> s.IsNull:
        return s.IsNull(c[0], any(isinstance(child, Token) and child.type == "NOT" for child in c))

    def _attribute(self, tree: Tree[Token], c: Children) -> s.Attr:
        return s.Attr(c[0], str(c[1]), _at(tree))

    def _folded(self, tree: Tree[Token], c: Children) -> Any:
        """`a op b op c`. A rule with one child is that child."""
        if len(c) == 1:
            return c[0]
        operators = tuple(str(operator).lower() for operator in c[1::2])
        if len(operators) == 1:
            return s.Binary(operators[0], c[0], c[2], _at(tree))
        return s.Chain(tuple(c[::2]), operators, _at(tree))

    def _exists(self, tree: Tree[Token], c: Children) -> s.Exists:
        return s.Exists(c[1], _child(c, _Where))

    def _call(self, tree: Tree[Token], c: Children) -> s.FunctionCall:
        args = c[1] if len(c) > 1 else _Args((), False, False, None)
        return s.FunctionCall(str(c[0]), args.values, args.distinct, args.star, args.where, _at(tree))

    def _call_args(self, tree: Tree[Token], c: Children) -> _Args:
        tokens = {child.type for child in c if isinstance(child, Token)}
        values = tuple(child for child in c if not isinstance(child, Token | _Where))
        return _Args(values, "DISTINCT" in tokens, "STAR" in tokens, _child(c, _Where))

    def _list(self, tree: Tree[Token], c: Children) -> s.ListOf:
        return s.ListOf(tuple(c))

    def _sort_key(self, tree: Tree[Token], c: Children) -> s.Expr:
        return s.Sorted(c[0], c[1].upper() == "DESC") if len(c) > 1 else c[0]

    # patterns

    def _pattern(self, tree: Tree[Token], c: Children) -> tuple[s.Element, ...]:
        return tuple(c)

    def _node_element(self, tree: Tree[Token], c: Children) -> s.NodeElement:
        return s.NodeElement(str(c[0]), c[1].names, _at(tree))

    def _edge_element(self, tree: Tree[Token], c: Children) -> s.EdgeElement:
        targets = tuple(child for child in c[1:] if not isinstance(child, _Alias))
        return s.EdgeElement(str(c[0]), targets, _child(c, _Alias), _at(tree))

    def _alias(self, tree: Tree[Token], c: Children) -> _Alias:
        return _Alias(str(c[0]))

    def _where(self, tree: Tree[Token], c: Children) -> _Where:
        return _Where(c[0])

    def _everything(self, tree: Tree[Token], c: Children) -> s.Projection:
        alias = _child(c, _Alias)
        return s.Projection(None, "*", alias)

    def _column(self, tree: Tree[Token], c: Children) -> s.Projection:
        alias: str | None = _child(c, _Alias)
        source = tree.children[0]
        text = self._source(source) if isinstance(source, Tree) else str(source)
        return s.Projection(c[0], alias or text, alias)

    def _return_clause(self, tree: Tree[Token], c: Children) -> s.Return:
        return s.Return(tuple(child for child in c if isinstance(child, s.Projection)), isinstance(c[0], Token))

    # declarations

    def _type_name(self, tree: Tree[Token], c: Children) -> s.TypeRef:
        return s.TypeRef((str(c[0]),), len(c) > 1, _at(tree))

    def _type_expr(self, tree: Tree[Token], c: Children) -> s.TypeRef:
        names = tuple(name for child in c for name in child.names)
        return s.TypeRef(names, any(child.nullable for child in c), _at(tree))

    def _word_value(self, tree: Tree[Token], c: Children) -> tuple[Any, ...]:
        return (str(c[0]),)

    def _literal_value(self, tree: Tree[Token], c: Children) -> tuple[Any, ...]:
        return (c[0].value,)

    def _range_value(self, tree: Tree[Token], c: Children) -> tuple[Any, ...]:
        return (c[0].value, c[1].value)

    def _list_value(self, tree: Tree[Token], c: Children) -> tuple[Any, ...]:
        return tuple(child.value for child in c)

    def _attr_mod(self, tree: Tree[Token], c: Children) -> s.Modifier:
        return s.Modifier(str(c[0]).lower(), c[1] if len(c) > 1 else (), _at(tree))

    def _bound_mod(self, tree: Tree[Token], c: Children) -> s.Modifier:
        return s.Modifier(str(c[0]), (c[1].value,), _at(tree))

    def _range_mod(self, tree: Tree[Token], c: Children) -> s.Modifier:
        return s.Modifier("..", (c[0].value, c[1].value), _at(tree))

    def _attr_mods(self, tree: Tree[Token], c: Children) -> _Modifiers:
        return _Modifiers(c)

    def _attr_decl(self, tree: Tree[Token], c: Children) -> s.AttributeDecl:
        default = next((child for child in c[2:] if not isinstance(child, _Modifiers)), None)
        return s.AttributeDecl(str(c[0]), c[1], tuple(_child(c, _Modifiers) or ()), default, _at(tree))

    def _alias_decl(self, tree: Tree[Token], c: Children) -> s.AliasDecl:
        return s.AliasDecl(str(c[0]), c[1], tuple(_child(c, _Modifiers) or ()), _at(tree))

    def _parents(self, tree: Tree[Token], c: Children) -> _Parents:
        return _Parents(map(str, c))

    def _node_mods(self, tree: Tree[Token], c: Children) -> _Flags:
        return _Flags(str(child).lower() for child in c)

    def _node_decl(self, tree: Tree[Token], c: Children) -> s.NodeDecl:
        flags = [child.lower() for child in c if isinstance(child, Token) and child.type == "NODE_FLAG"]
        flags += [flag for child in c if isinstance(child, _Flags) for flag in child]
        name = next(child for child in c if isinstance(child, Token) and child.type == "NAME")
        attributes = tuple(child for child in c if isinstance(child, s.AttributeDecl))
        parents = tuple(_child(c, _Parents) or ())
        return s.NodeDecl(str(name), parents, attributes, tuple(sorted(set(flags))), _at(tree))

    def _slot(self, tree: Tree[Token], c: Children) -> _Slot:
        return _Slot((str(c[0]), c[1]))

    def _attr_body(self, tree: Tree[Token], c: Children) -> _Body:
        return _Body(c)

    def _flag_mod(self, tree: Tree[Token], c: Children) -> s.Modifier:
        return s.Modifier(str(c[0]).lower(), (), _at(tree))

    def _action_mod(self, tree: Tree[Token], c: Children) -> s.Modifier:
        return s.Modifier(str(c[0]).lower(), (str(c[1]).lower(),), _at(tree))

    def _card_mod(self, tree: Tree[Token], c: Children) -> s.Modifier:
        return s.Modifier("->", (str(c[0]), *c[1]), _at(tree))

    def _card(self, tree: Tree[Token], c: Children) -> tuple[int, int | None]:
        least = int(c[0])
        return least, (c[1] if len(c) > 1 else least)

    def _card_end(self, tree: Tree[Token], c: Children) -> int | None:
        return None if c[0] == "*" else int(c[0])

    def _edge_mods(self, tree: Tree[Token], c: Children) -> _Modifiers:
        return _Modifiers(c)

    def _edge_decl(self, tree: Tree[Token], c: Children) -> s.EdgeDecl:
        slots = tuple(child[0] for child in c if isinstance(child, _Slot))
        modifiers = tuple(mod for child in c if isinstance(child, _Modifiers) for mod in child)
        return s.EdgeDecl(str(c[0]), slots, modifiers, tuple(_child(c, _Body) or ()), _at(tree))

    def _ontology(self, tree: Tree[Token], c: Children) -> s.OntologyDecl:
        return s.OntologyDecl(tuple(c[1:]), str(c[0]), _at(tree))

    # statements

    def _assignment(self, tree: Tree[Token], c: Children) -> tuple[str, s.Expr]:
        return str(c[0]), c[1]

    def _attr_block(self, tree: Tree[Token], c: Children) -> _Values:
        names: set[str] = set()
        for name, _ in c:
            if name in names:
                raise GraphError("parse_error", f"attribute '{name}' is given twice", at=_at(tree))
            names.add(name)
        return _Values(c)

    def _spawn_item(self, tree: Tree[Token], c: Children) -> s.SpawnItem:
        return s.SpawnItem(str(c[0]), str(c[1]), tuple(_child(c, _Values) or ()), _at(tree))

    def _new_target(self, tree: Tree[Token], c: Children) -> s.SpawnItem:
        return s.SpawnItem(_child(c, _Alias), str(c[0]), tuple(_child(c, _Values) or ()), _at(tree))

    def _returned(self, tree: Tree[Token], c: Children) -> _Returned:
        path = tuple(str(child) for child in c if isinstance(child, Token))
        return _Returned((path, _child(c, _Alias) or ".".join(path)))

    def _returning(self, tree: Tree[Token], c: Children) -> s.Returning:
        return s.Returning(tuple(child[0] for child in c if isinstance(child, _Returned)))

    def _spawn(self, tree: Tree[Token], c: Children) -> s.Spawn:
        return s.Spawn(tuple(child for child in c if isinstance(child, s.SpawnItem)), _child(c, s.Returning), _at(tree))

    def _link_name(self, tree: Tree[Token], c: Children) -> _Alias:
        return _Alias(str(c[0]))

    def _link(self, tree: Tree[Token], c: Children) -> s.Link:
        targets = tuple(
            child for child in c if isinstance(child, s.IdRef | s.Name | s.Param | s.Chosen | s.SpawnItem | s.Wild)
        )
        kind = next(child for child in c if isinstance(child, Token) and child.type == "NAME")
        for what, twice in ((_Alias, "named"), (_Values, "given attributes")):
            if sum(isinstance(child, what) for child in c) > 1:
                raise GraphError("parse_error", f"the edge is {twice} twice", at=_at(tree))
        return s.Link(
            str(kind),
            targets,
            tuple(_child(c, _Values) or ()),
            _child(c, _Alias),
            any(isinstance(child, Token) and child.type == "IF_NOT_EXISTS" for child in c),
            _child(c, s.Returning),
            _at(tree),
        )

    def _chosen(self, tree: Tree[Token], c: Children) -> s.Chosen:
        return s.Chosen(c[0])

    def _set(self, tree: Tree[Token], c: Children) -> s.Set:
        block = _child(c, _Values)
        values = tuple(block) if block is not None else ((str(c[1]), c[2]),)
        return s.Set(c[0], values, _child(c, s.Returning), _at(tree))

    def _cascade(self, tree: Tree[Token], c: Children) -> _Cascade:
        return _Cascade(c[0].type == "CASCADE")

    def _kill(self, tree: Tree[Token], c: Children) -> s.Kill:
        return s.Kill(c[0], _child(c, _Cascade), _child(c, s.Returning), _at(tree))

    def _unlink_one(self, tree: Tree[Token], c: Children) -> s.Unlink:
        return s.Unlink((c[0],), None, _child(c, s.Returning), _at(tree))

    def _unlink_between(self, tree: Tree[Token], c: Children) -> s.Unlink:
        ends = tuple(child for child in c[1:] if not isinstance(child, s.Returning))
        return s.Unlink(ends, str(c[0]), _child(c, s.Returning), _at(tree))

    def _order_by(self, tree: Tree[Token], c: Children) -> _Order:
        return _Order(child if isinstance(child, s.Sorted) else s.Sorted(child) for child in c)

    def _limit(self, tree: Tree[Token], c: Children) -> _Limit:
        return _Limit(c[0])

    def _offset(self, tree: Tree[Token], c: Children) -> _Offset:
        return _Offset(c[0])

    def _match(self, tree: Tree[Token], c: Children) -> s.Match:
        mutations = tuple(child for child in c if isinstance(child, s.Spawn | s.Link | s.Set | s.Kill | s.Unlink))
        return s.Match(
            c[0],
            _child(c, _Where),
            _child(c, s.Return),
            tuple(_child(c, _Order) or ()),
            _child(c, _Limit),
            _child(c, _Offset),
            mutations,
            _at(tree),
        )

    def _inspect(self, tree: Tree[Token], c: Children) -> s.Inspect:
        return s.Inspect(c[0], _child(c, s.Return), _at(tree))

    def _begin(self, tree: Tree[Token], c: Children) -> s.Begin:
        return s.Begin(_at(tree))

    def _commit(self, tree: Tree[Token], c: Children) -> s.Commit:
        return s.Commit(_at(tree))

    def _rollback(self, tree: Tree[Token], c: Children) -> s.Rollback:
        return s.Rollback(_at(tree))

    def _tick(self, tree: Tree[Token], c: Children) -> s.Tick:
        text = "".join(map(str, c))
        return s.Tick(int(text) if text not in ("", "-") else 1, _at(tree))

    def _option(self, tree: Tree[Token], c: Children) -> s.Option:
        return s.Option(str(c[0]).lower(), c[1], _at(tree))

    def _options(self, tree: Tree[Token], c: Children) -> _Options:
        return _Options(c)

    def _handle(self, tree: Tree[Token], c: Children) -> _Alias:
        return _Alias(str(c[0]))

    def _watch(self, tree: Tree[Token], c: Children) -> s.Watch:
        options = tuple(option for child in c if isinstance(child, _Options) for option in child)
        pattern = next(child for child in c if type(child) is tuple)
        body = next(child for child in tree.children if isinstance(child, Tree) and child.data == "pattern")
        where = next((child for child in tree.children if isinstance(child, Tree) and child.data == "where"), None)
        text = self._source(body) + (" " + self._source(where) if where is not None else "")
        returns = cast(s.Return, _child(c, s.Return))
        return s.Watch(pattern, returns, _child(c, _Where), options, _child(c, _Alias), text, _at(tree))

    def _not_for_ack(self, tree: Tree[Token], c: Children) -> None:
        error = GraphError("parse_error", "unexpected '['", at=_at(tree))
        error.hint = "[no_retry] belongs to NACK only, once"
        raise error

    def _ack(self, tree: Tree[Token], c: Children) -> s.SettleStatement:
        return s.SettleStatement("ACK", c[0], False, _at(tree))

    def _no_retry(self, tree: Tree[Token], c: Children) -> bool:
        return True

    def _nack(self, tree: Tree[Token], c: Children) -> s.SettleStatement:
        return s.SettleStatement("NACK", c[0], len(c) > 1, _at(tree))

    def _manage(self, tree: Tree[Token], c: Children) -> s.Manage:
        return s.Manage(str(c[0]).upper(), c[1], _at(tree))  # type: ignore[arg-type]

    def _alter(self, tree: Tree[Token], c: Children) -> s.Alter:
        options = tuple(option for child in c if isinstance(child, _Options) for option in child)
        return s.Alter(c[0], options, _at(tree))


def _at(tree: Tree[Token]) -> At:
    return (tree.meta.line, tree.meta.column) if not tree.meta.empty else (0, 0)


class _Boxed(tuple[Any, ...]):
    """Several values of a clause. The rule of the statement finds them by their class."""


class _Modifiers(_Boxed): ...


class _Parents(_Boxed): ...


class _Flags(_Boxed): ...


class _Body(_Boxed): ...


class _Values(_Boxed): ...


class _Order(_Boxed): ...


class _Options(_Boxed): ...


class _Single:
    """One value of a clause. The rule of the statement finds it by its class."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, index: int) -> Any:
        return self.value


class _Alias(_Single): ...


class _Where(_Single): ...


class _Slot(_Single): ...


class _Returned(_Single): ...


class _Limit(_Single): ...


class _Offset(_Single): ...


class _Cascade(_Single): ...


class _Args:
    def __init__(self, values: tuple[s.Expr, ...], distinct: bool, star: bool, where: s.Expr | None) -> None:
        self.values, self.distinct, self.star, self.where = values, distinct, star, where


def _child(children: Children, kind: type[Any]) -> Any:
    """The first child of a class, unboxed. None if there is none."""
    child = next((child for child in children if isinstance(child, kind)), None)
    return child.value if isinstance(child, _Single) else child
