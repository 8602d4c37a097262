"""Threads of several processes that wait for each other in no sensible order.

Nothing real looks like this; but whatever a follower of wake-ups may meet, it
meets here: wakers that slept themselves, were born a moment ago, are about to
exit, belong to the process that waits, to a worker, to a stranger.
"""

from engine import Queue
from workloads import MS, US


class Tangle:
    def __init__(self, rng, queues):
        self.rng = rng
        self.queues = [Queue() for _ in range(queues)]
        self.kinds = rng.choice([["run"], ["run", "run", "io", "sleep"], ["run", "io"], ["run", "sleep"]])
        self.longest = rng.choice([1, 4, 10]) * MS
        self.births = rng.random() < 0.6

    def give(self, th):
        queue = self.rng.choice(self.queues)
        if len(queue.items) < 2:
            th.sim.put(queue, 1, th)

    def some(self, th, n):
        """`n` random operations."""
        rng = self.rng
        for _ in range(n):
            what = rng.random()
            if what < 0.45:
                yield (rng.choice(self.kinds), rng.randint(5 * US, self.longest))
            elif what < 0.7:
                self.give(th)
                yield ("run", rng.randint(1, 30) * US)
            elif what < 0.95 or not self.births:
                yield ("get", rng.choice(self.queues))
            else:
                kid = th.proc.thread(lambda me: self.some(me, rng.randint(1, 5)), "kid", th)
                yield ("run", rng.randint(1, 40) * US)
                if rng.random() < 0.6:
                    yield ("join", kid)
        yield ("run", rng.randint(1, 30) * US)

    def forever(self, th):
        while True:
            yield from self.some(th, 8)

    def metronome(self, th):
        """Sees to it that nobody waits for ever."""
        while True:
            yield ("sleep", self.rng.randint(1, 6) * MS)
            for queue in self.queues:
                if queue.waiters:
                    th.sim.put(queue, 1, th)
            yield ("run", self.rng.randint(10, 500) * US)

    def setup(self, th):
        """Threads of the training process and of its workers; the fetch of its main thread."""
        rng, sim = self.rng, th.sim
        for _ in range(rng.randint(0, 3)):
            th.proc.thread(self.forever, "helper", th)
        for i in range(rng.randint(1, 3)):
            proc = sim.process(f"worker{i}", th)
            first = proc.thread(self.forever, creator=th)
            for _ in range(rng.randint(0, 2)):
                proc.thread(self.forever, "inner", first)
        if rng.random() < 0.5:
            th.proc.thread(self.metronome, "metronome", th)

        def fetch(me):
            yield from self.some(me, rng.randint(3, 12))

        return fetch
