"""Where a host listens, and the token for it."""

import os
from dataclasses import dataclass
from typing import Optional
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Address:
    """A unix socket (`path`), or a host and a port."""

    path: Optional[str] = None
    host: str = "localhost"
    port: int = 0
    is_tls: bool = False

    @classmethod
    def of(cls, url: str) -> "Address":
        """Reads `unix:/path` or `http://host:port`, as `fdguard host` prints them."""
        if url.startswith("unix:"):
            return cls(path=url[len("unix:") :])
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"not an address of a host: {url} (use http://HOST:PORT or unix:PATH)")
        return cls(host=parts.hostname, port=parts.port or (443 if is_tls else 80), is_tls=is_tls)

    @property
    def host_header(self) -> str:
        if self.path is not None:
            return "localhost"
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path is not None else f"{self.host}:{self.port}"


def default_token() -> Optional[str]:
    """The token that `fdguard host` uses by default: from $FDGUARD_HOST_TOKEN, else from its file."""
    given = os.environ.get("FDGUARD_HOST_TOKEN")
    if given:
        return given
    try:
        with open(_token_file(), encoding="ascii") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None


def _token_file() -> str:
    home = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_STATE_HOME")
    return os.path.join(home or os.path.expanduser("~/.local/state"), "fdguard", "host.token")
