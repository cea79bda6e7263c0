"""Sentences about values that do not fit a configuration, from msgspec's messages."""

from __future__ import annotations

import re

import msgspec
from msgspec import inspect

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "absent",
}


def reworded(error: Exception, kind: type[msgspec.Struct], prefix: str = "") -> str:
    """Say what is wrong in the words of the configuration, without a period.

    Args:
        error: what msgspec raised, or a ValueError with a sentence of its own.
        kind: the type that the values were converted to.
        prefix: the section that ``kind`` describes, followed by a dot; empty for the whole file.
    """
    text = str(error).removesuffix(".")
    if not isinstance(error, msgspec.ValidationError):
        return text
    message, _, path = text.partition(" - at `$")
    path = path.removesuffix("`").removeprefix(".")
    name = f"`{prefix}{path}`" if path else f"section `{prefix.removesuffix('.')}`" if prefix else "the file"
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", message):
        return f"{name} has no key `{match[1]}`"
    if match := re.fullmatch(r"Object missing required field `(.*)`", message):
        return f"{name} lacks the key `{match[1]}`"
    if match := re.fullmatch(r"Invalid enum value (.*)", message):
        known = ", ".join(map(str, _choices(kind, path)))
        return f"{name} must be one of {known}, but is {match[1]}" if known else f"{name} cannot be {match[1]}"
    if match := re.fullmatch(r"Expected `array` of length (\d+), got (\d+)", message):
        return f"{name} must have {match[1]} values, but has {match[2]}"
    if match := re.fullmatch(r"Expected `([^`]*)`, got `(\w+)`", message):
        return f"{name} must be {_named(match[1])}, but is {_named(match[2])}"
    if match := re.fullmatch(r"Expected `[^`]*` (>=|>|<=|<) (\S+)", message):
        relation = {">=": "at least", ">": "greater than", "<=": "at most", "<": "below"}[match[1]]
        return f"{name} must be {relation} {match[2].removesuffix('.0')}"
    return f"{name}: {message}"


def _named(types: str) -> str:
    """Name the types of a message, such as ``int | null``."""
    names = [_TYPES.get(name, name) for name in types.split(" | ") if name != "null" or types == "null"]
    return " or ".join(names)


def _choices(kind: type[msgspec.Struct], path: str) -> tuple[object, ...]:
    """List the values that a field may have, if it has a fixed set of them."""
    info: inspect.Type = inspect.type_info(kind)
    for part in path.split("."):
        fields = (
            {field.encode_name: field.type for field in info.fields} if isinstance(info, inspect.StructType) else {}
        )
        if part not in fields:
            return ()
        info = fields[part]
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    return tuple(value for kind in kinds if isinstance(kind, inspect.LiteralType) for value in kind.values)
