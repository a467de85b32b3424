"""What every program may read: the interpreter's library, the shared objects it needs, a few devices."""

import os
import sys

DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_SHARED = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")


def readable() -> list[str]:
    """Existing paths, none of them below another."""
    own = [os.path.join(sys.base_prefix, part) for part in ("lib", "lib64")]
    paths = sorted(path for path in {*sys.path, *own, *_SHARED} if os.path.isabs(path) and os.path.exists(path))
    return [path for path in paths if not any(path.startswith(other + "/") for other in paths)]
