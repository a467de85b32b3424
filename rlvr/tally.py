"""Means that can be added: a metric is a sum and a count, so that adding over ranks is averaging."""

from collections.abc import Iterable, Mapping


class Tally:
    """Named sums and counts.

    Example: `t.add("reward", 3.0, 4)` on one rank and `t.add("reward", 1.0, 4)` on another merge to a mean of 0.5.
    """

    def __init__(self) -> None:
        self.sums: dict[str, tuple[float, float]] = {}

    def add(self, name: str, total: float, count: float = 1.0) -> None:
        """Add `total`, the sum of `count` values."""
        old_total, old_count = self.sums.get(name, (0.0, 0.0))
        self.sums[name] = (old_total + total, old_count + count)

    def add_all(self, values: Mapping[str, float], prefix: str = "") -> None:
        """Add one value of each name."""
        for name, value in values.items():
            self.add(prefix + name, value)

    @staticmethod
    def merged(parts: "Iterable[Tally]") -> "Tally":
        """All parts as one."""
        whole = Tally()
        for part in parts:
            for name, (total, count) in part.sums.items():
                whole.add(name, total, count)
        return whole

    def means(self, prefix: str = "") -> dict[str, float]:
        """The mean of each name that has values."""
        return {prefix + name: total / count for name, (total, count) in self.sums.items() if count}
