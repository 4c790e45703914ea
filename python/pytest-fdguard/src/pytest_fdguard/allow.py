"""What may stay open: by marker or by the `fdguard_allow` lines of the configuration."""

from fnmatch import fnmatchcase
from typing import Iterable, List, Optional, Tuple

KEYS = ("count", "class_", "target", "reason")


class Allowance:
    """So many of a class with a target that matches. Processes have the class `process`, their target is the command."""

    def __init__(self, class_: str = "*", target: str = "*", count: Optional[int] = None):
        self.class_ = class_
        self.target = target
        self.left = count

    def takes(self, class_: str, target: str) -> bool:
        """Whether it covers this one, which is counted then."""
        if self.left == 0 or not fnmatchcase(class_, self.class_) or not fnmatchcase(target, self.target):
            return False
        if self.left is not None:
            self.left -= 1
        return True


def of_marker(mark) -> Allowance:
    """Of `fdguard_allow(count=…, class_=…, target=…)`; ValueError says what is wrong with it."""
    if mark.args:
        raise ValueError("fdguard_allow takes keywords only: count, class_, target, reason")
    for key in mark.kwargs:
        if key not in KEYS:
            raise ValueError(f"fdguard_allow has no {key!r}: it takes count, class_, target, reason")
    count = mark.kwargs.get("count")
    if count is not None and (not isinstance(count, int) or count < 0):
        raise ValueError(f"fdguard_allow(count={count!r}): a number of descriptors is expected")
    for key in ("class_", "target"):
        if not isinstance(mark.kwargs.get(key, ""), str):
            raise ValueError(f"fdguard_allow({key}={mark.kwargs[key]!r}): a pattern is expected")
    return Allowance(mark.kwargs.get("class_", "*"), mark.kwargs.get("target", "*"), count)


def of_lines(lines: Iterable[str]) -> List[Allowance]:
    """Of lines `CLASS [TARGET]`."""
    allowances = []
    for line in lines:
        class_, _, target = line.strip().partition(" ")
        if class_:
            allowances.append(Allowance(class_, target.strip() or "*"))
    return allowances


def sift(found: Iterable, allowances: List[Allowance]) -> Tuple[list, list]:
    """What is not allowed, and what is. Those without a count are asked first, then the narrow ones: so a count lasts."""
    order = sorted(allowances, key=lambda one: (one.left is not None, one.class_ == "*", one.target == "*"))
    rest, allowed = [], []
    for one in found:
        is_allowed = any(allowance.takes(one.class_, one.target) for allowance in order)
        (allowed if is_allowed else rest).append(one)
    return rest, allowed
