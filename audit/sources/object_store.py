"""Pictures on other machines: whatever fsspec opens (s3, gs, http, memory, ...), read one by one.

An object counts as unchanged by its size and its ETag, else its time; without either it is read
again. Credentials inside an address are refused, because the run stores addresses.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from audit.errors import UsageError
from audit.sources.readings import ReadingError

SCHEME = "fetch+"
TRIES = 5
FIRST_PAUSE_S = 0.2
REQUEST_S, SILENCE_S = 40.0, 8.0
"""How long one request of http may take, and how long its host may send nothing."""
AT_ONCE = 16
"""Objects that a process asks for at a time."""
_TAGS = ("ETag", "etag", "md5", "md5Hash", "checksum", "Content-MD5", "sha256", "e_tag")
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "created", "modified")
_CREDENTIALS = re.compile(r"://[^/?#]*@")
_FURTHER = re.compile(r"([?#]).+", re.DOTALL)
_INSTALL = "pip install 'dataset-preflight[remote]'"
_RANGE_BEHIND_END = re.compile(r"\b416\b|InvalidRange|range is not satisfiable", re.IGNORECASE)


def is_object(place: str) -> bool:
    """Return whether a place is an object of a store."""
    return place.startswith(SCHEME)


def check_address(url: str) -> None:
    """Raise UsageError for an address that cannot be used or must not be kept."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError(f"{hide_secrets(url)} is not an address: correct it.") from None
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    if parts.username or parts.password:
        raise UsageError(
            f"The address {shown} contains credentials: leave them out, and set them in the "
            "environment or the configuration of the library of the store."
        )
    if parts.query or parts.fragment:
        raise UsageError(
            f"The address {shown} has a query, which may contain a key and would be stored in the "
            "run: give the plain address."
        )
    if _is_link_local(parts.hostname or ""):
        raise UsageError(f"{parts.hostname} is a link-local address, which is not read.")
    _filesystem(parts.scheme)


def hide_secrets(url: str) -> str:
    """Return an address that can be stored: `***` for credentials, query and fragment."""
    return _FURTHER.sub(r"\1***", _CREDENTIALS.sub("://***@", url))


def _is_link_local(host: str) -> bool:
    """Return whether a host is a link-local address, in any spelling of its number."""
    try:
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):  # a name
        return False
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    return any((getattr(a, "ipv4_mapped", None) or a).is_link_local for a in addresses)


@cache
def _filesystem(protocol: str) -> Any:
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError:
        raise UsageError(f"Addresses of other machines need fsspec: {_INSTALL}.") from None
    options: dict[str, Any] = {}
    try:
        if protocol in ("http", "https"):
            import aiohttp  # type: ignore[import-not-found, unused-ignore]

            timeout = aiohttp.ClientTimeout(REQUEST_S, sock_connect=SILENCE_S, sock_read=SILENCE_S)
            headers = {"User-Agent": "dataset-preflight"}
            options = {"client_kwargs": {"timeout": timeout, "headers": headers}}
        return fsspec.filesystem(protocol, **options)
    except ImportError as error:
        raise UsageError(f"{protocol}:// needs another library ({error}): {_INSTALL}.") from None
    except ValueError:
        raise UsageError(
            f"Addresses that begin with {protocol}:// are not known: use s3://, gs://, hf://, "
            "https:// or another protocol of fsspec."
        ) from None
    except Exception as error:  # noqa: BLE001 - each store's library raises errors of its own
        name = type(error).__name__
        raise UsageError(f"{protocol}:// cannot be opened: {name}: {error}.") from None


def _open_store(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of an address, and the address as it spells it."""
    store = _filesystem(url.partition("://")[0])
    return store, store._strip_protocol(url)


def list_store(url: str) -> dict[str, dict[str, Any]]:
    """Return what fsspec tells of each object below an address, by its path below it.

    A single object has the path ''. Raises UsageError where there is nothing or no permission.
    """
    store, root = _open_store(url)
    prefix = root.rstrip("/") + "/"
    try:
        found = _tried(lambda: store.find(root, detail=True), url)
    except ReadingError as error:
        raise UsageError(f"{url} cannot be listed: {error}.") from None
    if not found:
        raise UsageError(f"{url} is empty, does not exist or cannot be reached: check the address.")
    objects = {path.removeprefix(prefix) if path != root else "": i for path, i in found.items()}
    if all(info.get("size") is None for info in objects.values()):
        objects = _ask_each(store, prefix, objects)
    return objects


def _ask_each(
    store: Any, prefix: str, objects: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return what a store knows of each object, where its listing has names only."""

    def ask(name: str) -> dict[str, Any]:
        try:
            return dict(_tried(lambda: store.info(prefix + name if name else prefix[:-1]), name))
        except ReadingError:
            return dict(objects[name])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(objects, pool.map(ask, objects), strict=True))


def object_times(info: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return bytes, modification time (ns, -1 unknown) and a number of the ETag, else the time."""
    size = -1 if info.get("size") is None else int(info["size"])
    tag = next((str(info[name]) for name in _TAGS if info.get(name)), None)
    changed = _nanoseconds(next((info[name] for name in _TIMES if info.get(name)), None))
    if tag is not None:
        digest = hashlib.blake2b(tag.encode(), digest_size=7).digest()
        return size, changed, int.from_bytes(digest, "big")
    return size, changed, -1 if changed >= 0 else time.time_ns()


def _nanoseconds(when: Any) -> int:
    try:
        when = datetime.fromisoformat(when) if isinstance(when, str) else when
        when = when.timestamp() if isinstance(when, datetime) else when
    except ValueError:
        return -1
    return int(when * 1e9) if isinstance(when, int | float) else -1


def read_object(url: str, limit: int, start: int = 0, size: int | None = None) -> bytes:
    """Return the bytes of an object, or a range; raises ReadingError, bomb above `limit`."""
    store, path = _open_store(url)
    wanted = limit + 1 if size is None else min(size, limit + 1)

    def read() -> bytes:
        data = bytes(store.cat_file(path, start=start, end=start + wanted))
        if size is not None and len(data) < wanted:
            raise ConnectionError(f"{len(data):,} of {wanted:,} bytes received")
        return data

    try:
        data: bytes = _tried(read, url)
    except ReadingError as error:
        if error.kind == "truncated" and size is None and not start:
            return b""  # no range can be had of an object without bytes
        raise
    if len(data) > limit:
        raise ReadingError("bomb", f"the object has more than max_bytes, {limit:,} bytes")
    return data


def read_address(url: str, limit: int) -> bytes:
    """Return the bytes at an address that a manifest lists; raises ReadingError."""
    try:
        check_address(url)
    except UsageError as error:
        raise ReadingError("unsupported", str(error).rstrip(".")) from None
    return read_object(url, limit)


def _tried(ask: Callable[[], Any], what: str) -> Any:
    """Ask up to `TRIES` times, with growing pauses; raises ReadingError."""
    pause = FIRST_PAUSE_S
    for attempt in range(1, TRIES + 1):
        try:
            return ask()
        except FileNotFoundError:
            raise ReadingError("missing", "the object does not exist") from None
        except PermissionError as error:
            raise ReadingError("permission", f"the store refuses access ({error})") from None
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001 - each store's library raises errors of its own
            if _RANGE_BEHIND_END.search(str(error)):
                text = "the object ends before the requested bytes"
                raise ReadingError("truncated", text) from None
            if attempt == TRIES:
                text = f"the store failed {TRIES} times: {type(error).__name__}: {error}"
                raise ReadingError("io", text) from None
        time.sleep(pause)
        pause *= 2
    raise AssertionError(what)


def open_object(url: str) -> Any:
    """Return an object as an open file that reads ranges."""
    store, path = _open_store(url)
    return store.open(path, "rb")
