"""Place to bytes: the files, members of packs and objects of stores that pictures lie in.

A file is opened without waiting, read once and bounded in size; what cannot be read is an error
kind of its row, what the machine lacks is raised. What lies on other machines is read ahead, some
at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from audit.picture.decode import DecodeError, Limits, raise_machine_error
from audit.sources.object_store import AT_ONCE, SCHEME, is_object, read_address, read_object
from audit.sources.packs.formats import read_packed
from audit.sources.packs.members import is_distant, is_member, member_place
from audit.sources.paths import path_of
from audit.sources.readings import ReadingError
from dataset_preflight.foundation.files import SpecialFileError, regular


def read_bytes(place: str | bytes, limits: Limits, coming: Future[bytes] | None = None) -> bytes:
    """Return the bytes of a file, of a member of a pack, an object of a store or an address.

    Raises DecodeError: missing, permission, empty, bomb or io, and what a pack adds; MachineError
    where the machine has run out of something. `coming`: the bytes are being read already.
    """
    try:
        if isinstance(place, str) and path_of(place) is None:
            data = _distant_bytes(place, limits, coming)
        else:
            data = _file_bytes(place, limits)
    except FileNotFoundError:
        raise DecodeError("missing", "the file does not exist") from None
    except PermissionError:
        raise DecodeError("permission", "the file may not be read by this user") from None
    except SpecialFileError:
        raise DecodeError("not-an-image", "it is a device, not a file") from None
    except OSError as error:
        raise_machine_error(error)
        raise DecodeError("io", f"the system could not read the file: {error.strerror}") from None
    if not data:
        raise DecodeError("empty", "the file has no bytes")
    return data


def _distant_bytes(place: str, limits: Limits, coming: Future[bytes] | None) -> bytes:
    try:
        return coming.result() if coming is not None else _ask(place, limits.max_bytes)
    except ReadingError as error:
        raise DecodeError(error.kind, str(error)) from None


def _ask(place: str, limit: int) -> bytes:
    if is_member(place):
        return read_packed(place, limit)
    if is_object(place):
        return read_object(place.removeprefix(SCHEME), limit)
    return read_address(place, limit)


def _file_bytes(path: str | bytes, limits: Limits) -> bytes:
    with open(path, "rb", buffering=0, opener=regular) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limits.max_bytes:
            raise DecodeError(
                "bomb", f"the file has {size:,} bytes; max_bytes is {limits.max_bytes:,}"
            )
        return file.read()


@contextmanager
def reading_ahead(
    places: Sequence[str | None], limit: int
) -> Iterator[Mapping[str, Future[bytes]]]:
    """Begin to read what lies elsewhere among some places; give the answers to come, by place."""
    distant = dict.fromkeys(place for place in places if place and _is_elsewhere(place))
    if not distant:
        yield {}
        return
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield {place: pool.submit(_ask, place, limit) for place in distant}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _is_elsewhere(place: str) -> bool:
    return is_distant(member_place(place)[1]) if is_member(place) else path_of(place) is None
