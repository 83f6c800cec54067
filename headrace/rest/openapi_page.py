"""Renders the OpenAPI description as one page of HTML, without scripts or external files."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = """\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; }
details { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: 6px; margin: .4rem 0; }
summary { cursor: pointer; padding: .4rem .7rem; }
details > :not(summary) { margin: .4rem .7rem; }
table { border-collapse: collapse; }
td, th { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); padding: .15rem .8rem .15rem 0; }
td, th { text-align: left; vertical-align: top; }
"""
_SCHEMAS: Final = "#/components/schemas/"


def openapi_page(description: Mapping[str, Any]) -> str:
    """Return the page of a description: each route with its parameters and answers, then the fields of each type."""
    title = escape(f"{description['info']['title']} {description['info']['version']}")
    schemas = description.get("components", {}).get("schemas", {})
    return "\n".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
            f"<style>{_STYLE}</style></head><body><main>",
            f"<h1>{title}</h1><p>{escape(description['info'].get('description', ''))}",
            'The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
            "<h2>Routes</h2>",
            *(
                _route(method, path, operation)
                for path, operations in description["paths"].items()
                for method, operation in operations.items()
            ),
            "<h2>Types</h2>",
            *(_schema(name, schema) for name, schema in sorted(schemas.items())),
            "</main></body></html>",
        ]
    )


def _route(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parameters = [
        (
            f"<code>{escape(one['name'])}</code>",
            f"{escape(one['in'])}{', needed' if one.get('required') else ''}",
            _type(one.get("schema", {})),
            escape(one.get("description", "")),
        )
        for one in operation.get("parameters", ())
    ]
    body = operation.get("requestBody")
    answers = [
        (escape(status), escape(answer.get("description", "")), _content(answer))
        for status, answer in operation.get("responses", {}).items()
    ]
    return "\n".join(
        [
            f"<details><summary><b>{escape(method.upper())}</b> <code>{escape(path)}</code> "
            f"{escape(operation.get('summary', ''))}</summary>",
            *(_table(("parameter", "where", "type", "meaning"), parameters) if parameters else ()),
            *([f"<p>Body: {_content(body)}</p>"] if body else ()),
            *_table(("status", "answer", "type"), answers),
            "</details>",
        ]
    )


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    fields = [
        (
            f"<code>{escape(field)}</code>",
            _type(described),
            "" if field in needed else "may be left out",
            escape(described.get("description", "")),
        )
        for field, described in schema.get("properties", {}).items()
    ]
    return "\n".join(
        [
            f'<details id="{escape(name)}" open><summary><code>{escape(name)}</code></summary>',
            f"<p>{escape(schema.get('description', ''))}</p>",
            *(_table(("field", "type", "", "meaning"), fields) if fields else (_type(schema),)),
            "</details>",
        ]
    )


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield f"<table><tr>{''.join(f'<th>{each}</th>' for each in headings)}</tr>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</table>"


def _content(body: Mapping[str, Any]) -> str:
    return ", ".join(_type(one.get("schema", {})) for one in body.get("content", {}).values())


def _type(schema: Mapping[str, Any]) -> str:
    """Return a short description of a type, with a link if the type has a name."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).removeprefix(_SCHEMAS))
        return f'<a href="#{name}">{name}</a>'
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " or ".join(_type(one) for one in choices)
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"{_type(schema['additionalProperties'])} by name"
    return escape(str(schema.get("type", "anything")))
