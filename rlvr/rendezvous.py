"""How the ranks of a run find each other, within seconds, and what is said when they do not.

Ranks of one host talk through loopback and listen nowhere else.  Ranks of several hosts talk through the interface that
leads to rank 0, unless GLOO_SOCKET_IFNAME names another.
"""

import contextlib
import fcntl
import json
import os
import socket
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
LOOPBACK = "127.0.0.1"
RETRY = 0.2  # seconds between two attempts to reach rank 0
KNOCK = 10.0  # seconds until another host counts as out of reach
LISTED = 8  # most ranks that a message names
LINK = "20"  # scope of an IPv6 address that is good for one cable only
SIOCGIFADDR = 0x8915  # netdevice(7): the IPv4 address of an interface


class RendezvousError(RuntimeError):
    """The ranks did not find each other; the message says which, and what to do."""


@dataclass(frozen=True)
class Seat:
    """What a rank tells the others of itself."""

    rank: int
    size: int  # as this rank was told
    local_rank: int
    host: str
    machine: str  # differs between hosts, and between containers with networks of their own
    address: str  # through which it talks to other hosts


def join(timeout: float) -> dist.Store:
    """Meet all ranks that torchrun's variables speak of, and make sure that their hosts reach each other.

    Returns:
        The store through which they met; the caller keeps it, for on rank 0 it may be the server.

    Raises:
        RendezvousError: if they have not all come after `timeout` seconds, or cannot work together.
    """
    refuse_missing(os.environ)
    end = time.monotonic() + timeout
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not 0 <= rank < size:
        raise RendezvousError(f"RANK={rank} with WORLD_SIZE={size}: ranks are counted from 0")
    store = _store(rank, timeout)
    mine = Seat(rank, size, int(os.environ["LOCAL_RANK"]), socket.gethostname(), _machine(), _own_address())
    try:
        seats = _roll_call(store, mine, end)
        if len({seat.machine for seat in seats}) == 1:
            stay_on_loopback()
        else:
            _connect_hosts(store, mine, seats)
    except dist.DistError as error:
        raise RendezvousError(
            f"rank {rank} on {mine.host} has lost rank 0, or its launcher: see what that said ({error})"
        ) from None
    return store


def refuse_missing(env: Mapping[str, str]) -> None:
    """Raises RendezvousError where torchrun's variables are there in part."""
    missing = [name for name in VARIABLES if name not in env]
    if missing:
        raise RendezvousError(f"RANK is set but not {', '.join(missing)}: set all of {', '.join(VARIABLES)}, or none")


def serve(port: int, everywhere: bool) -> dist.TCPStore:
    """The server of the ranks' store; only on loopback, unless `everywhere`.

    Args:
        port: 0 for any that is free.

    Raises:
        RendezvousError: if the port is in use.
    """
    try:
        if everywhere:
            listener = socket.create_server(
                ("", port), family=socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET,
                dualstack_ipv6=socket.has_dualstack_ipv6(),
            )  # fmt: skip
        else:
            listener = socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise RendezvousError(
            f"rank 0 cannot listen on port {port} of {socket.gethostname()} ({error.strerror}): another run, or "
            "what is left of one, has it; set MASTER_PORT to another port, the same for all ranks"
        ) from None
    port = listener.getsockname()[1]
    return dist.TCPStore(
        LOOPBACK, port, is_master=True, wait_for_workers=False, multi_tenant=True, master_listen_fd=listener.detach()
    )


# -- the store -----------------------------------------------------------------------------


def _store(rank: int, timeout: float) -> dist.Store:
    """Rank 0 serves, or a launcher that says so; the others connect."""
    env = os.environ
    address, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
    launcher_serves = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store: dist.Store
    if rank == 0 and not launcher_serves:
        alone = env["WORLD_SIZE"] == env.get("LOCAL_WORLD_SIZE") or address in (LOOPBACK, "localhost")
        store = serve(port, everywhere=not alone)
    else:
        _reach(address, port, rank, timeout)
        store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=timeout))
    return dist.PrefixStore(f"rlvr/{env.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


def _reach(address: str, port: int, rank: int, timeout: float) -> None:
    """Wait until somebody listens there."""
    end, why = time.monotonic() + timeout, ""
    while time.monotonic() < end:
        try:
            socket.create_connection((address, port), timeout=max(0.1, min(KNOCK, end - time.monotonic()))).close()
            return
        except OSError as error:
            why = str(error.strerror or error)
        time.sleep(RETRY)
    raise RendezvousError(
        f"rank {rank} on {socket.gethostname()} cannot reach rank 0 at {address}:{port} after {timeout:g} s ({why})."
        f"{_hint(address)} Is rank 0 running, and MASTER_ADDR an address of its host that this one can reach? A longer "
        "wait: hardware.join_timeout"
    )


def _hint(address: str) -> str:
    """What is odd about MASTER_ADDR, seen from here."""
    try:
        ip = _resolved(address)
    except OSError:
        return f" The name {address} does not resolve here: use an IP address."
    if _is_loopback(ip) and os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]:
        return f" {address} is {ip}, loopback: seen from any host, that is the host itself; use an address of rank 0's."
    return ""


# -- who is there -----------------------------------------------------------------------------


def _roll_call(store: dist.Store, mine: Seat, end: float) -> list[Seat]:
    """The seats of all ranks, in order."""
    told = json.dumps(asdict(mine))
    taken = store.compare_set(_seat(mine.rank), "", told).decode()
    if taken != told:
        other = Seat(**json.loads(taken))
        raise RendezvousError(
            f"rank {mine.rank} is there twice, on {other.host} and on {mine.host}: each process needs a RANK of its "
            "own (torchrun --node-rank)"
        )
    keys = [_seat(rank) for rank in range(mine.size)]
    try:
        store.wait(keys, timedelta(seconds=max(0.1, end - time.monotonic())))
    except dist.DistError:
        raise RendezvousError(_absent(store, keys)) from None
    seats = [Seat(**json.loads(seat)) for seat in store.multi_get(keys)]
    for seat in seats:
        if seat.size != mine.size:
            raise RendezvousError(
                f"rank {mine.rank} on {mine.host} was told WORLD_SIZE={mine.size}, rank {seat.rank} on {seat.host} "
                f"WORLD_SIZE={seat.size}: start all with the same number"
            )
    return seats


def _seat(rank: int) -> str:
    return f"seat/{rank}"


def _absent(store: dist.Store, keys: Sequence[str]) -> str:
    absent = [rank for rank, key in enumerate(keys) if not store.check([key])]
    few = ", ".join(map(str, absent[:LISTED])) + (", ..." if len(absent) > LISTED else "")
    return (
        f"{len(keys) - len(absent)} of WORLD_SIZE={len(keys)} ranks have come in time (hardware.join_timeout); "
        f"missing: {few}.{_hint(os.environ['MASTER_ADDR'])} Did they start, and is WORLD_SIZE right?"
    )


# -- several hosts -----------------------------------------------------------------------------


def _connect_hosts(store: dist.Store, mine: Seat, seats: Sequence[Seat]) -> None:
    """Pick the interface, and let the first rank of each host knock at the next host."""
    if _is_loopback(mine.address):
        given = os.environ.get("GLOO_SOCKET_IFNAME")
        cause = f"GLOO_SOCKET_IFNAME={given} is" if given else f"MASTER_ADDR={os.environ['MASTER_ADDR']} leads to"
        raise RendezvousError(
            f"the ranks are on several hosts, and on {mine.host} (rank {mine.rank}) {cause} loopback, which no other "
            f"host can reach: set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to one of {_listed()}, or MASTER_ADDR "
            "to an IP address"
        )
    firsts = list({seat.machine: seat for seat in reversed(seats)}.values())[::-1]
    if mine in firsts:
        following = firsts[(firsts.index(mine) + 1) % len(firsts)]
        with socket.create_server((mine.address, 0), family=_family(mine.address)) as door:
            store.set(f"door/{mine.rank}", str(door.getsockname()[1]))
            _knock(store, mine, following)
            _all_knocked(store, firsts)
    else:
        _all_knocked(store, firsts)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface_of(mine.address) or "")


def _knock(store: dist.Store, mine: Seat, other: Seat) -> None:
    told = ""
    try:
        store.wait([f"door/{other.rank}"], timedelta(seconds=KNOCK))
        port = int(store.get(f"door/{other.rank}"))
        socket.create_connection((other.address, port), timeout=KNOCK).close()
    except (OSError, dist.DistError) as error:
        told = (
            f"rank {mine.rank} on {mine.host} ({mine.address}) cannot reach rank {other.rank} on {other.host} at "
            f"{other.address} ({error}): set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on both to the interface of the "
            "network they share, and let no firewall stand between them"
        )
    store.set(f"knocked/{mine.rank}", told)


def _all_knocked(store: dist.Store, firsts: Sequence[Seat]) -> None:
    """Wait until every host has knocked; raise what any of them has to say."""
    keys = [f"knocked/{seat.rank}" for seat in firsts]
    store.wait(keys, timedelta(seconds=3 * KNOCK))
    told = [answer.decode() for answer in store.multi_get(keys)]
    if troubles := [text for text in told if text]:
        raise RendezvousError("\n".join(troubles))


def stay_on_loopback() -> None:
    """Let gloo, NCCL and vLLM use it, where the user has not said what to use."""
    loopback = _interface_of(LOOPBACK) or "lo"
    chosen = {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": f"={loopback}", "VLLM_HOST_IP": LOOPBACK}
    for name, value in chosen.items():
        os.environ.setdefault(name, value)


# -- this host -----------------------------------------------------------------------------


def interfaces() -> dict[str, list[str]]:
    """The addresses of this host's interfaces, by name."""
    found: dict[str, list[str]] = {name: [] for _, name in socket.if_nameindex()}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for name, addresses in found.items():
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                addresses.append(socket.inet_ntoa(answer[20:24]))
    for name, address in _ipv6():
        found.setdefault(name, []).append(address)
    return found


def _ipv6() -> Iterator[tuple[str, str]]:
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else ():
        digits, _, _, scope, _, name = line.split()
        if scope != LINK:
            yield name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))


def _own_address() -> str:
    """The address that others can reach this rank at: of the interface that was named, or that leads to rank 0."""
    named = os.environ.get("GLOO_SOCKET_IFNAME")
    known = interfaces()
    if named:
        addresses = [address for name in named.split(",") for address in known.get(name, ())]
        if not addresses:
            raise RendezvousError(
                f"GLOO_SOCKET_IFNAME={named}: {socket.gethostname()} has no such interface, or it has no address; "
                f"there are {_listed()}"
            )
        return addresses[0]
    try:
        target = _resolved(os.environ["MASTER_ADDR"])
        with socket.socket(_family(target), socket.SOCK_DGRAM) as probe:
            probe.connect((target, int(os.environ["MASTER_PORT"])))  # sends nothing: the kernel picks a route
            return str(probe.getsockname()[0])
    except OSError as error:
        raise RendezvousError(f"MASTER_ADDR={os.environ['MASTER_ADDR']}: {error.strerror or error}") from None


def _interface_of(address: str) -> str | None:
    return next((name for name, addresses in interfaces().items() if address in addresses), None)


def _listed() -> str:
    useful = {n: a for n, a in interfaces().items() if a and not any(map(_is_loopback, a))}
    return ", ".join(f"{name} ({addresses[0]})" for name, addresses in useful.items()) or "none (only loopback is up)"


def _resolved(name: str) -> str:
    return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _machine() -> str:
    """Equal for processes that share a host and its network."""
    boot, network = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")
    parts: Collection[str] = (
        socket.gethostname(),
        boot.read_text().strip() if boot.exists() else "",
        os.readlink(network) if network.exists() else "",
    )
    return "/".join(parts)
