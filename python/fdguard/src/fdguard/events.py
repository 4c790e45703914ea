"""Server-sent events, as the host sends them: one `event:` line, one `data:` line, an empty line."""

from typing import List, NamedTuple, Optional


class Event(NamedTuple):
    name: str
    data: str


class Parser:
    """Takes lines and returns an event when one is complete."""

    def __init__(self) -> None:
        self._name = "message"
        self._data: List[str] = []

    def feed(self, raw: bytes) -> Optional[Event]:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            return self._finish()
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        # Comments and other fields mean nothing here.
        return None

    def _finish(self) -> Optional[Event]:
        event = Event(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data = "message", []
        return event
