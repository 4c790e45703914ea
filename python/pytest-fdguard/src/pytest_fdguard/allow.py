"""Accepted leftovers, from the marker or the `fdguard_allow` lines of the configuration."""

from fnmatch import fnmatchcase
from typing import Iterable, List, Optional, Tuple

KEYS = ("count", "class_", "target", "reason")


class Allowance:
    """A number of leftovers with a matching class and target. A process has the class `process` and its command as target."""

    def __init__(self, class_: str = "*", target: str = "*", count: Optional[int] = None):
        self.class_ = class_
        self.target = target
        self.left = count

    def takes(self, class_: str, target: str) -> bool:
        """Whether it covers this leftover; if so, the leftover is counted."""
        if self.left == 0 or not fnmatchcase(class_, self.class_) or not fnmatchcase(target, self.target):
            return False
        if self.left is not None:
            self.left -= 1
        return True


def of_marker(mark) -> Allowance:
    """Parses `fdguard_allow(count=…, class_=…, target=…)`; raises ValueError if it is invalid."""
    if mark.args:
        raise ValueError("fdguard_allow accepts only keyword arguments: count, class_, target, reason")
    for key in mark.kwargs:
        if key not in KEYS:
            raise ValueError(f"fdguard_allow has no argument {key!r}: use count, class_, target, reason")
    count = mark.kwargs.get("count")
    if count is not None and (not isinstance(count, int) or count < 0):
        raise ValueError(f"fdguard_allow(count={count!r}): count must be a non-negative integer")
    for key in ("class_", "target"):
        if not isinstance(mark.kwargs.get(key, ""), str):
            raise ValueError(f"fdguard_allow({key}={mark.kwargs[key]!r}): {key} must be a string pattern")
    return Allowance(mark.kwargs.get("class_", "*"), mark.kwargs.get("target", "*"), count)


def of_lines(lines: Iterable[str]) -> List[Allowance]:
    """Parses lines of the form `CLASS [TARGET]`."""
    allowances = []
    for line in lines:
        class_, _, target = line.strip().partition(" ")
        if class_:
            allowances.append(Allowance(class_, target.strip() or "*"))
    return allowances


def sift(found: Iterable, allowances: List[Allowance]) -> Tuple[list, list]:
    """Splits leftovers into not allowed and allowed. Allowances without a count match first, then narrow ones, so that counts last."""
    order = sorted(allowances, key=lambda one: (one.left is not None, one.class_ == "*", one.target == "*"))
    rest, allowed = [], []
    for one in found:
        is_allowed = any(allowance.takes(one.class_, one.target) for allowance in order)
        (allowed if is_allowed else rest).append(one)
    return rest, allowed
