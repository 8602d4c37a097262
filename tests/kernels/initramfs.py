"""A file system in memory for a guest, written as a cpio archive ("newc", Documentation/driver-api/early-userspace).

Every file keeps its path: programs find their libraries, and tests the tools, where they were built. A path through a
symbolic link (/bin -> usr/bin) brings the link along.
"""
import os
import re
import shutil
import stat
import subprocess

import images


class Archive:
    """A cpio archive that grows as files are added."""

    def __init__(self, path):
        self.out = open(path, "wb")
        self.known = set()
        self.inode = 0

    def close(self):
        """Ends the archive. The kernel unpacks any number of them from one file, each aligned to 4 bytes."""
        self._entry("TRAILER!!!", 0)
        self.out.close()

    def directory(self, path, mode=0o755):
        """An empty directory, and those above it."""
        path = self._resolved(os.path.join(path, "x"))[:-2]
        self._once(path, stat.S_IFDIR | mode)

    def text(self, path, content, mode=0o644):
        """A file with this content, at a path that the host need not have."""
        self._once(self._resolved(path), stat.S_IFREG | mode, content.encode())

    def link(self, path, to):
        """A symbolic link."""
        self._once(self._resolved(path), stat.S_IFLNK | 0o777, to.encode())

    def add(self, path, content_of=None):
        """A file of the host; `content_of` is another one with what is to be in it. A program brings its libraries."""
        place = self._resolved(path)
        if place in self.known:
            return
        if os.path.islink(path):
            self.link(path, os.readlink(path))
            self.add(os.path.join(os.path.dirname(place), os.readlink(path)), content_of)
            return
        with open(content_of or path, "rb") as source:
            content = source.read()
        self._once(place, stat.S_IFREG | stat.S_IMODE(os.stat(path).st_mode), content, int(os.stat(path).st_mtime))
        if content.startswith(b"\x7fELF"):
            for library in libraries(path):
                self.add(library)

    def tree(self, top):
        """All files below a directory of the host."""
        for directory, _, names in os.walk(top):
            self.directory(directory)
            for name in names:
                self.add(os.path.join(directory, name))

    def _resolved(self, path):
        """Where a path leads, without following its last part; adds the directories and links on the way."""
        place = "/"
        for part in os.path.normpath(path).strip("/").split("/")[:-1]:
            here = os.path.join(place, part)
            if os.path.islink(here):
                self._once(here, stat.S_IFLNK | 0o777, os.readlink(here).encode())
                here = self._resolved(os.path.join(os.path.normpath(os.path.join(place, os.readlink(here))), "x"))[:-2] or "/"
            else:
                self._once(here, stat.S_IFDIR | 0o755)
            place = here
        return os.path.join(place, os.path.basename(path))

    def _once(self, path, mode, content=b"", mtime=0):
        if path not in self.known:
            self.known.add(path)
            self._entry(path.lstrip("/"), mode, content, mtime)

    def _entry(self, name, mode, content=b"", mtime=0):
        self.inode += 1
        name = name.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, mtime, len(content), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields)
        for piece in (head + name, content):
            self.out.write(piece)
            self.out.write(b"\0" * (-len(piece) % 4))


def libraries(path):
    """The shared libraries of a program, and its dynamic linker, as ldd finds them here."""
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    # One that is not found is one that the program opens by another way, or its test will say so.
    return re.findall(r"(/\S+) \(0x", done.stdout)


def program(name):
    """The path of a command, where a plain user's PATH does not look too."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise images.NotToBeHad("%s is not there, and the guests need it; tests/scripts/prerequisites.sh kernels" % name)
    return path


def stripped(path, to):
    """A copy of a program without its debugging sections, which are most of it."""
    subprocess.run(["strip", "--strip-debug", "-o", to, path], check=True)
    return to
