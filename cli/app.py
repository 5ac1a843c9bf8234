"""What every command shares: global options anywhere on the line, help that opens with examples,
errors as exit codes, signals, and one place where asyncio is started.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ..raft.core.errors import FencepostError, NoEndpoint, NoLeader, Outcome
from .client_settings import ClientSettings, resolve
from .output import FORMATS, Renderer, drop_stdout

if TYPE_CHECKING:
    from ..transport.client import Client

T = TypeVar("T")

LEFTOVER_THREADS_S = 1.0
"""How long a process that is done waits for threads that are not."""

_FLAGS = "fencepost.flags"
_SESSION = "fencepost.session"


class UsageProblem(FencepostError):
    """The command line itself is wrong."""

    code = "USAGE"
    outcome = Outcome.REFUSED
    exit_code = 2


class Signalled(BaseException):
    """A signal ended the command: the exit code is 128 + its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


# -- session ----------------------------------------------------------------------------------------


class Session:
    """One run of the command: its settings and its renderer."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.render = Renderer(
            format=settings.output, color=settings.color, time_style=settings.time, quiet=settings.quiet
        )

    def client(self, *, timeout_s: float = 30.0) -> Client:
        """A client of the cluster; ``timeout_s`` is the default of ``--timeout``, in seconds."""
        from ..transport.client import Client

        return Client(
            self.settings.endpoints,
            cluster_id=self.settings.cluster_id,
            timeout_s=self.settings.timeout_s(timeout_s),
        )


def current_session() -> Session:
    """The session of the command under way. Raises ConfigurationError for settings that are wrong."""
    meta = click.get_current_context().meta
    session = meta.get(_SESSION)
    if session is None:
        session = meta[_SESSION] = Session(resolve(meta.get(_FLAGS, {})))
    assert isinstance(session, Session)
    return session


# -- options ----------------------------------------------------------------------------------------


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE:
        ctx.meta.setdefault(_FLAGS, {})[param.name] = value


def _global_options() -> list[click.Option]:
    def option(*names: str, **keywords: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_remember, **keywords)

    return [
        option("--endpoints", metavar="HOST:PORT,…", help="Client addresses of the nodes."),
        option("--context", metavar="NAME|FILE", help="A context of the client file, or a client file."),
        option("--timeout", metavar="DURATION", help='How long the command may take, such as "30s".'),
        option("-o", "--output", metavar="|".join(FORMATS), help="Format of the result."),
        option("--time", metavar="relative|iso", help="How times are shown."),
        option("--color", metavar="auto|always|never", help="Colours (NO_COLOR is honoured)."),
        option("-q", "--quiet", is_flag=True, help="No notices."),
        option("-v", "--verbose", is_flag=True, help="More about errors."),
    ]


class _Documented(click.Command):
    """A command whose help opens with two examples, and that takes the global options."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.examples = tuple(examples)
        self.params = [*self.params, *_global_options()]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("Examples:\n")
        for example in self.examples:
            formatter.write(f"  {example}\n")
        formatter.write("\n")
        super().format_help(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and record[1]:
                (shared if isinstance(param, click.Option) and param.callback is _remember else own).append(record)
        for title, records in (("Options", own), ("Global options", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class FencepostCommand(_Documented):
    """A command itself, not a group of them."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (NoEndpoint, NoLeader) as error:
            from .advice import advise

            settings = current_session().settings
            file = ctx.meta.get(_FLAGS, {}).get("context") or os.environ.get("FENCEPOST_CONTEXT", "")
            folders = dict.fromkeys((Path(), Path(file).parent if file.endswith(".toml") else Path()))
            advise(error, settings.endpoints, folders)
            source = settings.sources.get("endpoints", "the default")
            if not source.startswith("flag"):
                error.tried = (*error.tried, f"(endpoints from {source}; --endpoints names others)")
            raise


class FencepostGroup(_Documented, click.Group):
    """Commands are named with the module that holds them and imported when they are asked for, so
    that ``fencepost explain`` does not pay for the network."""

    command_class = FencepostCommand

    def __init__(self, *arguments: Any, lazy: Mapping[str, str] | None = None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        present = [name for name, where in self.lazy.items() if _exists(where)]
        return [*present, *sorted(set(super().list_commands(ctx)) - set(present))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = self.lazy.get(cmd_name)
        if where is None or not _exists(where):
            return super().get_command(ctx, cmd_name)
        module, _, name = where.partition(":")
        found: click.Command = getattr(importlib.import_module(module, __package__), name)
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from .settings import did_you_mean

        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}{did_you_mean(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)


def _exists(where: str) -> bool:
    module = where.partition(":")[0]
    try:
        return importlib.util.find_spec(module, __package__) is not None
    except ModuleNotFoundError:
        return False


class RootGroup(FencepostGroup):
    """The command ``fencepost``: turns whatever happens into an exit code and an error text."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        code = self._run(arguments, prog_name or "fencepost", complete_var, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(self, arguments: list[str], prog_name: str, complete_var: str | None, extra: dict[str, Any]) -> int:
        try:
            with _terminated_by_signal():
                value = super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
            return value if isinstance(value, int) else 0
        except FencepostError as error:
            error_renderer(arguments).error(error)
            return error.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            # A group without a command: its help is the whole answer, and no error beside it.
            click.echo(error.format_message(), err=True)
            return UsageProblem.exit_code
        except click.UsageError as error:
            context = error.ctx.command_path if error.ctx is not None else prog_name
            said = error.format_message().rstrip(".")
            usage = UsageProblem(f"{said}; nothing was sent", next_step=f"{context} --help")
            error_renderer(arguments).error(usage)
            return usage.exit_code
        except (click.Abort, KeyboardInterrupt):
            return 128 + signal.SIGINT
        except Signalled as ended:
            return 128 + ended.number
        except BrokenPipeError:
            drop_stdout()
            return 0
        except Exception as error:
            # The last resort: whatever it is, it is a bug of ours and says so (exit code 1).
            if _wanted(arguments, "-v", "--verbose"):
                traceback.print_exc()
            bug = FencepostError(
                f"{type(error).__name__}: {error}",
                next_step="this is a bug; run it again with -v for the trace, and report both",
            )
            error_renderer(arguments).error(bug)
            return bug.exit_code


def _wanted(arguments: Sequence[str], *flags: str) -> bool:
    return any(argument in flags for argument in arguments)


def error_renderer(arguments: Sequence[str]) -> Renderer:
    """A renderer for errors that does not depend on the settings being right."""
    chosen = {"output": os.environ.get("FENCEPOST_OUTPUT", ""), "color": os.environ.get("FENCEPOST_COLOR", "")}
    for at, argument in enumerate(arguments):
        following = arguments[at + 1] if at + 1 < len(arguments) else ""
        name, equals, value = argument.partition("=")
        if argument in ("-o", "--output"):
            chosen["output"] = following
        elif argument.startswith("-o") and not argument.startswith("--"):
            chosen["output"] = argument[2:].removeprefix("=")
        elif name in ("--output", "--color"):
            chosen[name[2:]] = value if equals else following
    output = chosen["output"] if chosen["output"] in FORMATS else "table"
    color = chosen["color"] if chosen["color"] in ("auto", "always", "never") else "auto"
    return Renderer(format=output, color=color)


# -- running ----------------------------------------------------------------------------------------


class _terminated_by_signal:
    """SIGTERM outside asyncio unwinds the stack like SIGINT does, so that files are closed."""

    def __enter__(self) -> None:
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._raise)

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    @staticmethod
    def _raise(number: int, _frame: object) -> NoReturn:
        raise Signalled(number)


def run_async(
    make: Callable[[], Coroutine[Any, Any, T]],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run a coroutine to its end. The first SIGINT or SIGTERM cancels it, so that it can say what is
    known; the second ends the process at once. Raises :class:`Signalled` after a cancelled end."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_until_signal(make))


def end_at_last(code: int) -> threading.Timer:
    """End this process in :data:`LEFTOVER_THREADS_S`, unless cancelled, whatever its threads still do.

    Everything that has to be closed is closed by then. But Python waits for its threads before it
    ends, and one that hangs in somebody's database or at the disk never does (S45).
    """
    end = threading.Timer(LEFTOVER_THREADS_S, os._exit, [code])
    end.daemon = True
    end.start()
    return end


async def _until_signal(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    loop = asyncio.get_running_loop()
    task = loop.create_task(make())
    received: list[int] = []

    def on_signal(number: int) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        task.cancel()

    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    for number in numbers:
        loop.add_signal_handler(number, on_signal, int(number))
    try:
        return await task
    except asyncio.CancelledError:
        if received:
            raise Signalled(received[0]) from None
        task.cancel()
        raise
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def read_text(source: str) -> str:
    """``-`` is stdin, ``@file`` a file, anything else the text itself. Raises UsageProblem."""
    try:
        if source == "-":
            return sys.stdin.read()
        if source.startswith("@"):
            return Path(source[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = "stdin" if source == "-" else source[1:]
        reason = getattr(error, "strerror", None) or error
        raise UsageProblem(f"cannot read {what}: {reason}; nothing was sent") from error
    return source
