"""Standard streams of the command: missing ones, narrow encodings, closed pipes.

Place in the flow: `app.run` prepares them before a command and finishes them after it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import click

PROGRESS_S = 0.5  # seconds between two lines
PROTECTED = "oncelog.protected"  # in a context's `meta`: the name of a protected profile


def prepare() -> None:
    """Give a missing stream a descriptor that rejects its use; escape unprintable text.

    Otherwise a connection would get the number of the stream, and be written to.
    """
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)))
    if sys.stdout is None:
        sys.stdout = _writer(1)
    if sys.stderr is None:
        sys.stderr = _writer(2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _writer(descriptor: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)))


@contextlib.contextmanager
def progress(text: Callable[[], str]) -> Iterator[None]:
    """Show a line about the progress, on stderr, and only on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()

    def show() -> None:
        while True:
            sys.stderr.write(f"\r{text()}\x1b[K")
            sys.stderr.flush()
            if over.wait(PROGRESS_S):
                return

    thread = threading.Thread(target=show, name="progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def discard() -> None:
    """Drop unwritten output: the interpreter would try to write it again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_text(given: dict[str, Any], binary: tuple[str, ...] = ()) -> None:
    """Raises click.UsageError if an argument is not UTF-8, except those named in `binary`."""
    for name, value in given.items():
        texts = value if isinstance(value, tuple) else (value,)
        for text in texts:
            if isinstance(text, str) and name not in binary and not _is_utf8(text):
                shown = os.fsencode(text).decode(errors="backslashreplace")
                raise click.UsageError(f"{name.replace('_', '-')}: '{shown}' is not UTF-8")


def confirm(question: str, yes: bool) -> None:
    """Ask before a change that cannot be undone, unless `yes`. Raises click.UsageError.

    With a protected profile it always asks, for the profile's name.
    """
    protected = protected_profile()
    if protected:
        if not sys.stdin.isatty():
            text = f"profile {protected} is protected: type its name at a terminal"
            raise click.UsageError(f"{question} This cannot be undone: {text}")
        text = f"{question} This cannot be undone. Type {protected} to go on"
        if click.prompt(text, err=True, default="", show_default=False) != protected:
            raise click.Abort
        return
    if yes:
        return
    if not sys.stdin.isatty():
        reason = "give --yes, since standard input is not a terminal"
        raise click.UsageError(f"{question} This cannot be undone: {reason}")
    click.confirm(f"{question} This cannot be undone.", abort=True, err=True)


def protected_profile() -> str | None:
    """Return the name of the command's profile if it is protected."""
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.meta.get(PROTECTED)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
