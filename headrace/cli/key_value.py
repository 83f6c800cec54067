"""KeyValue: how a setting is written on the command line."""

import click


class KeyValue(click.ParamType[tuple[str, str]]):
    """`key=value`."""

    name = "key=value"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            self.fail(f"'{value}' is not of the form key=value", param, ctx)
        return key.strip(), text.strip()
