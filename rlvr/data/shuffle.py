"""A random order that is computed, not stored."""

from hashlib import blake2b

_ROUNDS = 6


class Shuffle:
    """A pseudo-random permutation of range(size), one element at a time: no table and no generator state.

    A Feistel network on the smallest even number of bits that holds `size`; results outside the
    range are fed back until one falls inside (cycle walking: Black and Rogaway 2002, method 2).
    The order depends on `size` and `key` alone, so it is the same in every process and version.
    """

    def __init__(self, size: int, *key: int | str) -> None:
        if size < 1:
            raise ValueError(f"cannot shuffle {size} things")
        self.size = size
        self._half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._key = blake2b(repr((size, *key)).encode(), digest_size=32).digest()

    def at(self, index: int) -> int:
        """The element at `index` of the order; both in range(size)."""
        if not 0 <= index < self.size:
            raise IndexError(f"{index} is not in range({self.size})")
        index = self._encrypt(index)
        while index >= self.size:
            index = self._encrypt(index)
        return index

    def _encrypt(self, value: int) -> int:
        mask = (1 << self._half) - 1
        left, right = value >> self._half, value & mask
        for turn in range(_ROUNDS):
            told = blake2b(turn.to_bytes(1, "little") + right.to_bytes(32, "little"), key=self._key, digest_size=32)
            left, right = right, left ^ (int.from_bytes(told.digest(), "little") & mask)
        return left << self._half | right
