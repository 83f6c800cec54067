"""`python -m headrace.testing.fault_proxy`: the proxy for people, with a live line of counts."""

import asyncio
import dataclasses
import shutil
import sys
from typing import Any, Final

import click

from headrace.core.clock import SystemClock
from headrace.network.transport.http_tunnel import PROXY
from headrace.testing.fault_proxy.injector import FaultApplied
from headrace.testing.fault_proxy.proxy import Address, FaultProxy, status_line
from headrace.testing.fault_proxy.rules import (
    ACTIONS,
    FRAME_NAMES,
    FaultRule,
    FaultRuleError,
    parse_rule,
)

_TERMINAL_INTERVAL_S: Final = 0.5
_PLAIN_INTERVAL_S: Final = 5.0


def _actions_help() -> str:
    lines: list[str] = []
    for word, action in ACTIONS.items():
        keys: list[str] = []
        for key in dataclasses.fields(action):
            name = f"{key.metadata['key']}=…"
            keys.append(name if key.default is dataclasses.MISSING else f"[{name}]")
        lines.append("  " + " ".join([word, *keys]))
        lines.append(f"      {action.__doc__}")
    return "\n".join(lines)


_HELP: Final = f"""\
Inject faults into the connections between TaskManagers.

A client of LISTEN is connected to TARGET or, without one, to the address that it requests, as TaskManagers with
headrace.network.proxy do. The proxy recognises frames, and applies faults to those that a rule selects. The proof of
the secret is not changed, so the proxy does not need the secret. It cannot read TLS.

\b
Try it on a job:
  python -m headrace.testing.fault_proxy --listen 127.0.0.1:7001 --rule 'delay AddCredit by=100ms'
  headrace run -D headrace.network.proxy=127.0.0.1:7001 -D parallelism.default=2 job.py

\b
Try it on one connection:
  python -m headrace.testing.fault_proxy --listen 127.0.0.1:7001 --to 127.0.0.1:7000 \\
      --rule 'delay AddCredit by=100ms'           slow credit: watch throughput fall
      --rule 'drop Data channel=1 sequence=5'     a lost batch: the reader says so by name
      --rule 'throttle 1MiB/s direction=backward' a slow link
      --rule 'stall Data nth=100'                 an open link that carries no data
      --rule 'corrupt probability=0.001' --seed 7 at random, but the same each time
  python -m headrace.testing.fault_proxy --listen unix:d.sock --to unix:moved.sock

\b
With TARGET and two processes on one host: start the producer, move its Unix socket aside, and listen where it was.
Over TCP, hand consumers the proxy's port in the TaskManagerLocation, as the tests do.

\b
A rule is: action [amount] [frame] [key=value …]
{_actions_help()}

\b
The amount is the value of the action's first key: 'delay 100ms', 'cut 7'.
Frames: {", ".join(FRAME_NAMES[:7])},
  {", ".join(FRAME_NAMES[7:14])},
  {", ".join(FRAME_NAMES[14:])}
Keys of every rule (all must hold):
  direction=forward|backward   forward is from the client; a consumer's data comes backward
  channel=3  sequence=5  sequence=5..9
  offset=4096                  the frame with this byte of its direction
  every=10  nth=4              counted per connection and direction
  probability=0.1  count=3     at random; at most this often

\b
Ctrl-C ends it. Exit codes: 0 ended, 1 cannot listen, 2 wrong usage.
"""


class _Rule(click.ParamType[FaultRule]):
    name = "rule"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> FaultRule:
        try:
            return parse_rule(value)
        except FaultRuleError as error:
            self.fail(str(error), param, ctx)


class _Address(click.ParamType[Address]):
    name = "host:port|unix:path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        try:
            return Address.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(help=_HELP, context_settings={"max_content_width": 120})
@click.option(
    "--listen",
    type=_Address(),
    required=True,
    help="Address on which to listen; port 0 for any free one.",
)
@click.option(
    "--to",
    "target",
    type=_Address(),
    help="Address of the data plane; default: the one that each client requests.",
)
@click.option(
    "--rule",
    "rules",
    type=_Rule(),
    multiple=True,
    help="A fault; may be repeated. Without one, frames are only counted.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of random faults; the same seed gives the same faults.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Print every fault, and count every kind of frame."
)
def main(
    listen: Address, target: Address | None, rules: tuple[FaultRule, ...], seed: int, verbose: bool
) -> None:
    """Run a proxy; the help text is `_HELP`."""
    if target is not None and listen.is_same_place(target):
        reason = f"{target} is the proxy's own address: it would dial itself endlessly"
        raise click.BadParameter(reason, param_hint="'--to'")
    if target is None and not listen.is_of_this_machine:
        reason = (
            f"{listen} is open to other machines, which without --to could connect to any address: listen on "
            "127.0.0.1, or set --to"
        )
        raise click.BadParameter(reason, param_hint="'--listen'")
    try:
        asyncio.run(_run(listen, target, rules, seed, verbose=verbose))
    except KeyboardInterrupt:
        click.echo()
    except OSError as error:
        raise click.ClickException(f"cannot listen on {listen}: {error}") from error


async def _run(
    listen: Address,
    target: Address | None,
    rules: tuple[FaultRule, ...],
    seed: int,
    *,
    verbose: bool,
) -> None:
    is_terminal = sys.stdout.isatty()
    erase = "\r\x1b[K" if is_terminal else ""

    def fault(number: int, applied: FaultApplied) -> None:
        if verbose:
            where = f"connection {number} {applied.direction.value}"
            click.echo(f"{erase}{where}: {applied.rule.word} {applied.frame_text}")

    clock = SystemClock()
    proxy = FaultProxy(
        target, rules, seed, clock, fault, lambda text: click.echo(erase + text, err=True)
    )
    bound = await proxy.listen(listen)
    leading_to = target or f"whom '{PROXY.key}: {bound}' asks for"
    click.echo(f"listening on {bound}, leading to {leading_to}, seed {seed}")
    for rule in rules:
        click.echo(f"  {rule}")
    started_ns, shown = clock.monotonic_ns(), ""
    try:
        while True:
            await asyncio.sleep(_TERMINAL_INTERVAL_S if is_terminal else _PLAIN_INTERVAL_S)
            elapsed_s = (clock.monotonic_ns() - started_ns) / 1_000_000_000
            line = status_line(elapsed_s, proxy.open_count, proxy.injectors, with_frames=verbose)
            news = line.partition("|")[2]
            if is_terminal:
                # A line that wraps could not be written over.
                columns = shutil.get_terminal_size().columns
                click.echo(erase + line[: columns - 1], nl=False)
            elif news != shown:
                click.echo(line)
            shown = news
    finally:
        await proxy.close()


if __name__ == "__main__":
    main()
