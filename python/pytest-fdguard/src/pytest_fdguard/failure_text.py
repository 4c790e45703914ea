"""Text of a failure report."""

from itertools import groupby
from typing import Dict, List, NamedTuple, Optional, Set

from .lines import Answer, Opened

# Leftovers listed per line.
SHOWN = 10


class Leftover(NamedTuple):
    """Something that a test left: a descriptor, or a child process (class `process`)."""

    number: int
    class_: str
    target: str
    # State of a process.
    state: str = ""
    opened: Optional[Opened] = None


def attributed(found: List[Leftover], answer: Optional[Answer]) -> List[Leftover]:
    """Adds the lines that the tracer knows."""
    opened: Dict[int, Opened] = answer.opened if answer else {}
    return [one if is_process(one) else one._replace(opened=opened.get(one.number)) for one in found]


def is_process(one: Leftover) -> bool:
    return one.class_ == "process"


def counted(found: List[Leftover]) -> str:
    """`2 descriptors and 1 child process`."""
    processes = sum(is_process(one) for one in found)
    descriptors = len(found) - processes
    parts = []
    if descriptors:
        parts.append("1 descriptor" if descriptors == 1 else f"{descriptors} descriptors")
    if processes:
        parts.append("1 child process" if processes == 1 else f"{processes} child processes")
    return " and ".join(parts)


def failure(found: List[Leftover], notes: List[str]) -> str:
    """The whole report: leftovers grouped by opening line, then notes."""
    lines = [f"fdguard: {counted(found)} left behind{culprits(found)}"]
    lines += listing(found)
    lines += [f"  {note}" for note in notes]
    return "\n".join(lines)


def culprits(found: List[Leftover]) -> str:
    """The most frequent opening line, for the one-line summary."""
    known = [one.opened.line for one in found if one.opened]
    first = max(known, key=known.count) if known else None
    return f", opened at {first}" if first else ""


def listing(found: List[Leftover]) -> List[str]:
    def key(one):
        opened = one.opened
        return is_process(one), opened is None, opened.line if opened else "", one.class_, one.number

    lines = []
    for line, group in groupby(sorted(found, key=key), key=lambda one: one.opened and one.opened.line):
        ones = list(group)
        lines += [entry(one) for one in ones[:SHOWN]]
        if len(ones) > SHOWN:
            lines.append(f"  and {len(ones) - SHOWN} more")
        if line:
            lines += origin(ones[0].opened)
    return lines


def entry(one: Leftover) -> str:
    if is_process(one):
        return f"  process {one.number}  {one.target} ({one.state})"
    generation = f" (generation {one.opened.generation})" if one.opened else ""
    return f"  fd {one.number}{generation}  {one.class_}  {one.target}"


def origin(opened: Opened) -> List[str]:
    how = f" ({opened.how})" if opened.how else ""
    lines = [f"    opened at {opened.line}{how}"]
    callers = opened.stack if len(opened.stack) > 1 else []
    return lines + [f"      {frame}" for frame in callers]


def doubts(found: List[Leftover], before: int, after: int, own: int) -> List[str]:
    """Why the result is uncertain: other threads open descriptors, too. What the tracer saw this thread open is certain."""
    open_to_doubt = [one for one in found if not is_process(one) and not (one.opened and one.opened.thread == own)]
    if not open_to_doubt or max(before, after) <= 1:
        return []
    seen = sorted(one.number for one in open_to_doubt if one.opened)
    others = f"fd {', '.join(map(str, seen))}: opened by another thread, not the test's; " if seen else ""
    if after > before:
        return [f"uncertain: {others}{running(after - before, 'more')} than before the test and may have opened them"]
    return [f"uncertain: {others}{running(max(before, after) - 1, 'other')} and may have opened them meanwhile"]


def running(count: int, which: str) -> str:
    return f"1 {which} thread is running" if count == 1 else f"{count} {which} threads are running"


def collected(found: List[Leftover], numbers: Set[int]) -> List[str]:
    """Notes which leftovers only a garbage collection closed: programs cannot rely on its timing."""
    closed = [f"fd {one.number}" for one in found if not is_process(one) and one.number in numbers]
    return [f"closed only by the garbage collector: {', '.join(closed)}"] if closed else []
