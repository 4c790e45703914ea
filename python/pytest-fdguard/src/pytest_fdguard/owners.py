"""Other owners of what appears during a test: the runtime, and fixtures that outlive the test."""

import sys
from typing import Dict, List, NamedTuple, Set, Tuple

from .look import Descriptor, Look, descriptors


def without_runtime(found: Look) -> Look:
    """Without the helper processes that multiprocessing starts once and keeps, and their pipes."""
    numbers, processes = _multiprocessing()
    if not numbers and not processes:
        return found
    kept = {one for one in found.descriptors if one.fd not in numbers}
    children = {child: state for child, state in found.children.items() if child.pid not in processes}
    return Look(kept, children, found.threads)


def _multiprocessing() -> Tuple[Set[int], Set[int]]:
    """Descriptor numbers and pids of the helpers. The attributes are private: if one is missing, nothing is excluded."""
    numbers, processes = set(), set()
    keepers = (
        ("multiprocessing.resource_tracker", "_resource_tracker", ("_fd",), "_pid"),
        ("multiprocessing.forkserver", "_forkserver", ("_forkserver_alive_fd",), "_forkserver_pid"),
    )
    for module, attribute, ends, process in keepers:
        keeper = getattr(sys.modules.get(module), attribute, None)
        numbers.update(getattr(keeper, end, None) for end in ends)
        processes.add(getattr(keeper, process, None))
    return numbers - {None}, processes - {None}


class Ended(NamedTuple):
    """A fixture that has ended, and the descriptors it did not close."""

    fixture: str
    descriptors: List[Descriptor]


class Fixtures:
    """Descriptors that fixtures of class, module or session scope opened during setup."""

    def __init__(self) -> None:
        self._owned: Dict[int, Tuple[str, Set[Descriptor]]] = {}
        self._ended: List[Tuple[str, Set[Descriptor]]] = []

    def own(self, fixturedef, new: Look) -> None:
        if new.descriptors:
            name = f"{fixturedef.argname} ({fixturedef.scope})"
            self._owned[id(fixturedef)] = name, new.descriptors

    def end(self, fixturedef) -> None:
        owned = self._owned.pop(id(fixturedef), None)
        if owned:
            self._ended.append(owned)

    def left(self) -> List[Ended]:
        """Descriptors still open of fixtures that ended since the last call."""
        ended, self._ended = self._ended, []
        if not ended:
            return []
        now = descriptors()
        left = [Ended(name, sorted(opened & now)) for name, opened in ended]
        # A fixture that set up another one has seen its descriptors, too.
        told: Set[Descriptor] = set()
        result = []
        for one in left:
            fresh = [descriptor for descriptor in one.descriptors if descriptor not in told]
            told.update(fresh)
            if fresh:
                result.append(Ended(one.fixture, fresh))
        return result
