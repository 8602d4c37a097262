"""What came of the tests in a guest, by what its init tells (init.sh)."""


class Outcome:
    """Hears the serial line of one guest, line by line."""

    def __init__(self, series, verbose):
        # Several guests tell at once.
        self.label = "%-5s" % series
        self.verbose = verbose
        self.release = self.tier = None
        self.done = False
        self.current = None
        self.said = []
        self.results = {}
        self.seconds = {}
        self.died_in = None

    def hear(self, line):
        """One line of the guest."""
        words = line.split(" ")
        if words[0] == "@kernel":
            self.release = words[1]
        elif words[0] == "@begin":
            self.current, self.said = " ".join(words[1:]), []
        elif words[0] == "@end" and self.current:
            self._end(int(words[1]), int(words[2]))
        elif words[0] == "@done":
            self.done = True
        else:
            self.said.append(line)
            if self.verbose:
                self._say("    " + line)

    def _end(self, status, seconds):
        skipped = [line for line in self.said if "skipped: " in line]
        # Not the status alone: a program that runs no test ends well too.
        passed = status == 0 and any(line.startswith("test result: ok. 1 passed") for line in self.said)
        result = "failed" if not passed else "skipped" if skipped else "passed"
        note = " (killed: too long)" if status == 137 else ""
        self._say("%-7s %4d s  %s%s" % (result, seconds, self.current, note))
        if result == "failed" and not self.verbose:
            for line in self.said[-200:]:
                self._say("    " + line)
        self.results[self.current], self.seconds[self.current] = result, seconds
        self.tier = next((line.split("tier: ")[1] for line in self.said if "tier: " in line), self.tier)
        self.current = None

    def _say(self, line):
        print("  %s %s\n" % (self.label, line), end="", flush=True)

    def died(self, console):
        """The guest ended or fell silent before it was done."""
        self.died_in = self.current or "its start"
        for line in ["the guest died in %s; the end of its console:" % self.died_in, *console.splitlines()]:
            self._say(line)

    def require(self, tests):
        """Each of these must have been told of."""
        for name, _, test in tests:
            self.results.setdefault("%s %s" % (name, test), "failed")

    @property
    def failed(self):
        """Whether anything went wrong."""
        return not self.done or "failed" in self.results.values()

    def summary(self, kernel):
        """Some lines for people, the last one with the counts."""
        count = lambda result: sum(r == result for r in self.results.values())  # noqa: E731
        lines = ["%s: %s" % (result.upper(), name) for name, result in self.results.items() if result == "failed"]
        if self.died_in:
            lines.append("FAILED: the guest died in %s" % self.died_in)
        lines.append("Linux %s: attach tier %s, %d s" % (self.release or kernel.release, self.tier or "not seen", sum(self.seconds.values())))
        # As cargo's test programs end, so that test.sh counts these with them.
        lines.append("test result: %s. %d passed; %d failed; %d ignored" % (
            "FAILED" if self.failed else "ok", count("passed"), count("failed"), count("skipped")))
        return "\n".join(lines)
