"""JSON behind a length of four bytes, on a pipe."""

import json
import os
import struct
from typing import Any

_LENGTH = struct.Struct("!I")


def read(descriptor: int) -> Any:
    """The next message.  Raises EOFError if the other side is gone."""
    (length,) = _LENGTH.unpack(_exactly(descriptor, _LENGTH.size))
    return json.loads(_exactly(descriptor, length))


def write(descriptor: int, message: Any) -> None:
    """Send one message."""
    data = json.dumps(message).encode()
    rest = memoryview(_LENGTH.pack(len(data)) + data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _exactly(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError("the other side has closed its pipe")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
