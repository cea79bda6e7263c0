"""The JSON schema that gives the npm package its types and checks: manifests, golden examples, tokenizer files and
decoding options, each field with its documentation in Python.

Usage: ``python -m tests.web.schema``, from the root of the repository, whenever one of them changes
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from itertools import pairwise
from types import ModuleType
from typing import Any

import msgspec

from edgeformer_runtime import contract
from edgeformer_runtime.bundle import generation, manifest, plan, text_format
from edgeformer_runtime.check import golden
from edgeformer_runtime.search import options
from edgeformer_runtime.search.option_values import Booleans, Integers, Numbers, TokenIds, Values
from edgeformer_runtime.tokenizers import tokenizer_file
from tests.web.package import WEB

FILE = WEB / "schema.json"
READ = (manifest.Manifest, golden.Golden, tokenizer_file.LibraryFile, tokenizer_file.SentencePieceFile)
"""What the package reads."""
MODULES = (contract, generation, golden, manifest, options, plan, text_format, tokenizer_file)
"""Where its types are defined."""
UNREAD = ("Provenance", "Report", "QuantizationReport", "TensorReport")
"""Types of which the package reads nothing."""
OMITTED = {
    *("coverage_penalty", "prefix_bias_beta", "sampling_topk", "sampling_topp", "sampling_temperature", "seed"),
    *("max_batch_tokens", "replace_unknowns"),
}
"""Decoding options that the package does not have."""

Schema = dict[str, Any]


def content() -> str:
    """The content of the file."""
    _, types = msgspec.json.schema_components(READ, ref_template="#/$defs/{name}")
    types = {name: _read(schema) for name, schema in types.items() if name not in UNREAD}
    types["DecodeOptions"] = decode_options()
    documented = {name: fields for module in MODULES for name, fields in documentation(module).items()}
    for name, schema in types.items():
        schema.pop("title", None)
        schema["description"] = _prose(schema.get("description", ""))
        for field, value in schema["properties"].items():
            if text := documented.get(name, {}).get(field):
                schema["properties"][field] = {**value, "description": _prose(text)}
    constants = {"SCHEMA_REVISION": contract.SCHEMA_REVISION}
    return json.dumps({"constants": constants, "$defs": types}, ensure_ascii=False, indent=1) + "\n"


def decode_options() -> Schema:
    """The schema of decoding options, whose names are in camel case in TypeScript."""
    properties = {
        _camel_case(name): {**_values(declared.values, default), "default": default}
        for name, (default, declared) in options.declarations().items()
        if name not in OMITTED
    }
    documented = documentation(options)["DecodeOptions"]
    for name, text in documented.items():
        if (own := _camel_case(name)) in properties:
            properties[own]["description"] = re.sub("`.+?`", lambda match: _camel_case(match[0]), _prose(text))
    return {"description": "How to search.", "properties": properties, "type": "object", "additionalProperties": False}


def documentation(module: ModuleType) -> dict[str, dict[str, str]]:
    """The text below each field, by class."""
    return {
        cls.name: {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in pairwise(cls.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        }
        for cls in ast.parse(inspect.getsource(module)).body
        if isinstance(cls, ast.ClassDef)
    }


def _values(values: Values, default: Any) -> Schema:
    """The schema of a decoding option."""
    match values:
        case Integers(least, most):
            schema: Schema = {"type": "integer", "minimum": least, "maximum": most}
        case Numbers(_, least, most):
            schema = {"type": "number", "minimum": least, "maximum": most}
        case Booleans():
            schema = {"type": "boolean"}
        case TokenIds(nested):
            token: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
            tokens: Schema = {"type": "array", "items": token, "tsType": "readonly (number | string)[]"}
            either = {"anyOf": [{"type": "string"}, tokens]}
            type_of = "readonly (string | readonly (number | string)[])[]"
            schema = {"type": "array", "items": either, "tsType": type_of} if nested else tokens
        case _:
            raise TypeError(values)
    return {"anyOf": [schema, {"type": "null"}]} if default is None else schema


def _read(schema: Any) -> Any:
    """A schema in JavaScript's regular expressions, in which parts of other types may be anything."""
    if isinstance(schema, list):
        return [_read(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if prefix := schema.pop("prefixItems", None):  # as many entries, all of one type
        schema |= {"items": prefix[0], "minItems": len(prefix), "maxItems": len(prefix)}
    if isinstance(schema.get("pattern"), str):
        schema["pattern"] = schema["pattern"].replace(r"\A", "^").replace(r"\Z", "$")
    schema.pop("discriminator", None)
    if properties := schema.get("properties"):
        unread = [name for name, part in properties.items() if any(f'/{name}"' in json.dumps(part) for name in UNREAD)]
        properties |= {name: {"default": None} for name in unread}
    return {name: _read(part) for name, part in schema.items()}


def _prose(text: str) -> str:
    """Documentation as TypeScript writes it."""
    text = re.sub(r":\w+:`~?\.*([^`]+)`", r"`\1`", text.split("\n\n")[0])
    text = text.replace("``None``", "`null`").replace("``True``", "`true`").replace("``", "`")
    return " ".join(text.split())


def _camel_case(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8")
