"""Prompts that are solved every time leave the stream, and come back for a re-check."""

from collections.abc import Iterable, Sequence

from rlvr.data.stream import PromptStream


class Retirement:
    """Which prompts rest.

    A prompt all of whose responses were right in `after` groups in a row is left out of the next `rest` steps.  Then it
    takes its turn again: if it is still solved it rests once more, if not it counts from 0.

    Args:
        rule: [after, rest], both at least 1; empty if no prompt ever rests.
    """

    def __init__(self, rule: Sequence[int]) -> None:
        self.after, self.rest = rule or (0, 0)
        self.state: dict[str, list[int]] = {}  # id -> [groups in a row, first step at which it may be drawn]

    def resting(self, step: int) -> int:
        """How many prompts rest at `step`."""
        return sum(step < until for _, until in self.state.values())

    def awake(self, stream: PromptStream, position: int, step: int) -> int:
        """The first position from `position` on whose prompt does not rest at `step`.

        Looks at no more positions than there are prompts.  If all of those rest, `position` itself: an early re-check.
        """
        if not self.state:
            return position
        ahead = range(position, position + len(stream))
        return next((p for p in ahead if step >= self.state.get(stream.at(p).id, (0, 0))[1]), position)

    def learn(self, groups: Iterable[tuple[int, str, bool]], step: int) -> None:
        """Take note of a step's groups of all ranks: (position, prompt id, were all responses right)."""
        for _, prompt, right in sorted(groups):
            if not right:
                self.state.pop(prompt, None)
                continue
            streak = self.state.get(prompt, (0, 0))[0] + 1
            self.state[prompt] = [streak, step + 1 + self.rest if streak >= self.after else 0]
