"""What a part hands over, and how times are taken: medians, spreads, and pairs in turn."""

from __future__ import annotations

import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from bench.shelf import Shelf

NOISY = 2.5
"""From this ratio of the 90th percentile to the median on, a figure is marked as noisy."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value: a median with its 10th and 90th percentile where it was taken often.

    A target is a bound that the value should stay under (``below``) or reach (``least``). ``cpu`` is the
    median time that the calling thread was on a processor: what is left of ``value`` when nobody
    else uses the machine and the disk answers at once.
    """

    name: str
    value: float
    unit: str = "ms"
    spread: tuple[float, float] | None = None
    below: float | None = None
    least: float | None = None
    remark: str = ""
    cpu: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.below is not None:
            return self.value < self.below
        return None if self.least is None else self.value >= self.least

    @property
    def noisy(self) -> bool:
        """Whether the spread is so wide that the value says little."""
        return self.spread is not None and self.value > 0 and self.spread[1] > NOISY * self.value


@dataclass(frozen=True, slots=True)
class Skipped:
    """What was not measured, and why."""

    name: str
    reason: str


Row = Figure | Skipped
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Options:
    """What a run was asked for, and the memories that its parts share."""

    shelf: Shelf
    full: bool = False
    locomo: Path | None = None


class Times(list[float]):
    """Seconds, and in ``cpu`` the seconds of the same actions on a processor."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu: list[float] = []


def milliseconds(name: str, seconds: Sequence[float], *, below: float | None = None, remark: str = "") -> Figure:
    """The median of some times, with its spread, in milliseconds."""
    cpu = statistics.median(seconds.cpu) * 1e3 if isinstance(seconds, Times) else None
    return replace(figure(name, [second * 1e3 for second in seconds], "ms", below=below, remark=remark), cpu=cpu)


def figure(
    name: str, values: Sequence[float], unit: str, *, below: float | None = None, least: float | None = None, remark: str = ""
) -> Figure:
    """The median of some values, with its spread."""
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    return Figure(name, statistics.median(values), unit, (cuts[0], cuts[-1]), below, least, remark)


def growth(name: str, small: Sequence[float], large: Sequence[float], *, below: float | None = None) -> Figure:
    """How many times longer the second of each pair took: the median over pairs that were measured side by side."""
    return figure(name, [after / before for before, after in zip(small, large, strict=True)], "times", below=below)


def timed(action: Callable[[], Any]) -> float:
    """Seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def in_turn(actions: Mapping[Key, Callable[[int], Any]], rounds: int) -> dict[Key, Times]:
    """Seconds of each action in each round: the actions take turns, so that a busy spell meets all of them."""
    times = {key: Times() for key in actions}
    for number in range(rounds):
        for key, action in actions.items():
            on_processor = time.thread_time()
            times[key].append(timed(functools.partial(action, number)))
            times[key].cpu.append(time.thread_time() - on_processor)
    return times


@dataclass(slots=True)
class Stopwatch:
    """Adds up the time spent in some functions while it is entered.

    ``watched`` names each function by its owner (a class or a module) and its attribute. ``take``
    hands over what was added up since the last ``take``.
    """

    watched: Mapping[str, tuple[Any, str]]
    _spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _originals: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for name, (owner, attribute) in self.watched.items():
            self._originals[name] = getattr(owner, attribute)
            setattr(owner, attribute, self._clocked(name, self._originals[name]))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name, (owner, attribute) in self.watched.items():
            setattr(owner, attribute, self._originals.pop(name))

    def _clocked(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def clocked(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._spent[name] += time.perf_counter() - start

        return clocked

    def take(self) -> dict[str, float]:
        """Seconds by name since the last time; 0 for what was not called."""
        spent = {name: self._spent.get(name, 0.0) for name in self.watched}
        self._spent.clear()
        return spent
