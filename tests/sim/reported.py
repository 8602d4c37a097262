"""What is wrong with a reported account, and where its loop begins by it."""

from account import CLASSES, LOST

GRACE_NS = 2_000  # where a loop begins: at the start of a call or at the end of the one before
ROUNDING_NS = 1_000


def own(record):
    classes = record.get("classes")
    return classes if isinstance(classes, dict) else {}


def loop_from(acct, record):
    """Where the loop begins: as reported, as far as that is possible; without a report, at the latest instant."""
    low, high = acct.loop_from
    if record is None:
        return high
    return min(max(acct.start + own(record).get("start_up", 0), low), high)


def form(record):
    """What must hold in any account, whatever is true."""
    classes = own(record)
    if not classes:
        yield f"account of {record.get('pid')}: no classes"
    for name, ns in classes.items():
        if name not in CLASSES:
            yield f"account of {record.get('pid')}: class {name} is not in the contract"
        if not isinstance(ns, int) or isinstance(ns, bool) or ns < 0:
            yield f"account of {record.get('pid')}: {name} is {ns}"
            return
    if sum(classes.values()) != record.get("observed_ns"):
        yield f"account of {record.get('pid')}: classes make {sum(classes.values())}, observed_ns is {record.get('observed_ns')}"
    loop, observed = record.get("loop_ns"), record.get("observed_ns", 0)
    if not isinstance(loop, int) or not 0 <= loop <= observed:
        yield f"account of {record.get('pid')}: loop_ns {loop} of {observed}"
    elif sum(classes.get(name, 0) for name in LOST) > observed - classes.get("start_up", 0):
        yield f"account of {record.get('pid')}: more lost than there was after start_up"


def against(acct, record):
    """The classes of one account beside the truth."""
    if not acct.exact:
        return
    pid, classes = record.get("pid"), own(record)
    if abs(record.get("observed_ns", 0) - (acct.end - acct.start)) > ROUNDING_NS:
        yield f"account of {pid}: observed_ns {record.get('observed_ns')}, should be {acct.end - acct.start}"
        return
    if acct.fog:
        # of what is not judged nothing is known, so only what lies outside of it must be there
        least = acct.lost(acct.loop_from[1])[0]
        said = sum(classes.get(name, 0) for name in ("idle", "silence", "not_judged", "start_up"))
        if said < least - ROUNDING_NS:
            yield f"account of {pid}: idle, silence, not_judged and start_up {said}, at least {least} is lost"
    else:
        yield from by_class(acct, pid, classes)
    most = acct.end - acct.start - classes.get("start_up", 0)
    least = acct.last_work - acct.start - classes.get("start_up", 0)
    if not least - ROUNDING_NS <= record.get("loop_ns", 0) <= most + ROUNDING_NS and not acct.fog:
        yield f"account of {pid}: loop_ns {record.get('loop_ns')}, from the end of start_up to the last work it is {least}..{most}"


def by_class(acct, pid, classes):
    low, high = acct.loop_from
    begin = acct.start + classes.get("start_up", 0)
    if not low - GRACE_NS <= begin <= high + GRACE_NS:
        yield f"account of {pid}: start_up {classes.get('start_up', 0)}, should be {low - acct.start}..{high - acct.start}"
    want = acct.bounds(min(max(begin, acct.start), acct.end))
    for name, (least, most) in want.items():
        said = classes.get(name, 0)
        if name != "start_up" and not least - ROUNDING_NS <= said <= most + ROUNDING_NS:
            yield f"account of {pid}: {name} {said}, should be {least}..{most}"
