"""Log lines as JSON: pairs each `name=%s` of a message with its argument.

    log.info("leads partition=%s term=%d", ...) --> JsonFormatter --> one object in a line

    {"time": "...", "level": "INFO", "logger": "...", "message": "leads", "partition": "t-0", ...}

The message is the text without its fields, so that equal events have equal messages.
"""

from __future__ import annotations

import json
import logging
import re
import time
from functools import lru_cache
from typing import Any, NamedTuple

_ONE = r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]"
_ARGUMENT = re.compile(rf"%%|{_ONE}")
_FIELD = re.compile(rf"(?:^|\s+)(\w+)=((?:[\w.-]*{_ONE})+)")
OWN = ("time", "level", "logger", "message", "traceback", "own_node")


class _Template(NamedTuple):
    """A message's text, with the places of its arguments. fields: name, form, places."""

    text: str
    places: tuple[int, ...]
    fields: tuple[tuple[str, str, tuple[int, ...]], ...]


@lru_cache(1024)
def _template(message: str) -> _Template:
    spans = [found.span() for found in _ARGUMENT.finditer(message) if found.group() != "%%"]
    fields, used = [], set[int]()
    for found in _FIELD.finditer(message):
        begin, end = found.span(2)
        places = tuple(number for number, span in enumerate(spans) if begin <= span[0] < end)
        used.update(places)
        name = found.group(1)
        fields.append((f"{name}_" if name in OWN else name, found.group(2), places))
    others = tuple(number for number in range(len(spans)) if number not in used)
    return _Template(_FIELD.sub("", message).strip(), others, tuple(fields))


class JsonFormatter(logging.Formatter):
    """One object in a line. Numbers stay numbers; times are UTC. node: named, if not None."""

    def __init__(self, node: int | None = None) -> None:
        super().__init__()
        self._names = {} if node is None else {"own_node": node}

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            **self._names,
        }
        arguments = record.args
        if isinstance(record.msg, str) and isinstance(arguments, tuple):
            text, places, fields = _template(record.msg)
            line["message"] = text % tuple(arguments[place] for place in places)
            for name, form, of in fields:
                line[name] = _value(form, tuple(arguments[place] for place in of))
        else:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _value(form: str, arguments: tuple[Any, ...]) -> object:
    text = form % arguments
    if len(arguments) == 1 and isinstance(arguments[0], int | float):
        try:
            return json.loads(text)  # as it is rounded
        except ValueError:
            return text
    return text
