"""Debian's cloud kernels: fetched as packages, unpacked, never installed.

What is in the cache is taken as it is, so that a run needs the network once; `rm -r tests/.cache/kernels` fetches anew.
"""
import collections
import glob
import os
import re
import shutil
import subprocess
import tempfile

# release: `uname -r`; version: the package's; vmlinuz: a path.
Kernel = collections.namedtuple("Kernel", "series release version vmlinuz")


class NotToBeHad(Exception):
    """A kernel that this machine's package sources do not offer, or that cannot be fetched."""


def natural(name):
    """A key that sorts 6.1.0-9 before 6.1.0-57."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def kernel(series, cache):
    """The newest cloud kernel of a series such as `6.12`: from the cache, else by apt-get."""
    if not os.path.isdir(os.path.join(cache, series)):
        fetch(series, cache)
    directory = os.path.join(cache, series)
    [vmlinuz] = glob.glob(os.path.join(directory, "boot", "vmlinuz-*"))
    with open(os.path.join(directory, "version"), encoding="ascii") as version:
        return Kernel(series, os.path.basename(vmlinuz).partition("-")[2], version.read().strip(), vmlinuz)


def fetch(series, cache):
    package = newest(series)
    os.makedirs(cache, exist_ok=True)
    # Complete or absent: it is moved into its place as a whole.
    with tempfile.TemporaryDirectory(dir=cache) as work:
        run(["apt-get", "download", "-qq", package], cwd=work)
        [deb] = glob.glob(os.path.join(work, "*.deb"))
        unpacked = os.path.join(work, "unpacked")
        run(["dpkg-deb", "--extract", deb, unpacked])
        version = run(["dpkg-deb", "--field", deb, "Version"])
        for kept in os.listdir(unpacked):
            # The matrix needs no module so far: what it uses is built in.
            if kept != "boot":
                shutil.rmtree(os.path.join(unpacked, kept))
        with open(os.path.join(unpacked, "version"), "w", encoding="ascii") as out:
            out.write(version)
        os.rename(unpacked, os.path.join(cache, series))


def newest(series):
    pattern = "^linux-image-%s[.][0-9].*-cloud-amd64$" % re.escape(series)
    search = ["apt-cache", "search", "--names-only", pattern]
    # A fresh machine may have no lists of packages yet.
    found = run(search) or (run(["apt-get", "update", "-qq"]) + run(search))
    names = [line.split()[0] for line in found.splitlines() if re.match(pattern, line.split()[0])]
    if not names:
        raise NotToBeHad("no package of a Linux %s cloud kernel in this machine's sources (apt-cache search %r)" % (series, pattern))
    return max(names, key=natural)


def run(command, cwd=None):
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    except FileNotFoundError:
        raise NotToBeHad("%s is not there: Debian's kernels are fetched with apt and dpkg" % command[0]) from None
    except subprocess.TimeoutExpired:
        raise NotToBeHad("%s did not end within 300 s" % " ".join(command)) from None
    if done.returncode:
        raise NotToBeHad("%s: %s" % (" ".join(command), (done.stderr or done.stdout).strip().replace("\n", "; ")))
    return done.stdout
