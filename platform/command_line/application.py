"""`penstock` as click knows it: a group for each noun, made when it is asked for."""

import os
from typing import Final

import click
from click.shell_completion import get_completion_class

from command_line import calls, operators
from command_line.chat import chat
from tenants.verbs import Verb

_OPERATORS: Final = operators.by_noun()
_WITHOUT_NOUN: Final = _OPERATORS.pop("")
_SHELLS: Final = ("bash", "zsh", "fish")
_EPILOG: Final = (
    "With PENSTOCK_URL and PENSTOCK_API_KEY calls go to that service; without, to the installation "
    "whose settings are here, or the stack that `make up` has started. Exit status: 0 done, "
    "1 refused, 2 misused, 3 not reachable."
)


class Noun(click.Group):
    """The verbs of one noun: those of operators where the installation is, else the API's; what
    only one of them has is always there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        noun = self.name or ""
        return sorted({*_OPERATORS.get(noun, {}), *calls.calls().get(noun, {})})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        noun = self.name or ""
        verb = _OPERATORS.get(noun, {}).get(cmd_name)
        call = calls.calls().get(noun, {}).get(cmd_name)
        if verb is not None and (call is None or not os.environ.get("PENSTOCK_URL")):
            return _of_operators(cmd_name, verb)
        return None if call is None else calls.command_of(cmd_name, call)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = ", ".join(self.list_commands(ctx))
            ctx.fail(f"{self.name} has no verb {name!r}; it has {known}.")
        return super().resolve_command(ctx, args)


class Penstock(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_OPERATORS, *calls.calls(), *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        if cmd_name not in _OPERATORS and cmd_name not in calls.calls():
            return None
        verbs = ", ".join(Noun(cmd_name).list_commands(ctx))
        return Noun(cmd_name, help=f"Verbs: {verbs}.", short_help=verbs)


@click.group(cls=Penstock, epilog=_EPILOG)
def penstock() -> None:
    """Penstock on the command line: a noun, then a verb."""


@penstock.command(short_help="Print what completes penstock in a shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print what completes `penstock` in a shell: source it there."""
    made = get_completion_class(shell)
    assert made is not None  # one of click's own  # noqa: S101
    click.echo(made(penstock, {}, "penstock", "_PENSTOCK_COMPLETE").source())


def _of_operators(name: str, verb: Verb) -> click.Command:
    """Return a verb that takes whatever its command of `manage.py` does."""

    def callback(arguments: tuple[str, ...]) -> None:
        context = click.get_current_context()
        operators.run(verb, arguments, called=context.command_path)

    return click.Command(
        name,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        callback=callback,
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        short_help=verb.text,
        help=verb.told,
    )


penstock.add_command(chat)
for _name, _verb in _WITHOUT_NOUN.items():
    penstock.add_command(_of_operators(_name, _verb))
