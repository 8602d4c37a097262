"""A kernel and an initramfs under qemu, without hardware help (TCG), and what its init tells on the second serial line."""
import os
import queue
import shutil
import subprocess
import threading

import images

QEMU = "qemu-system-x86_64"
MEMORY = "1536M"


def check():
    """Fails where there is no qemu."""
    if shutil.which(QEMU) is None:
        raise images.NotToBeHad("%s is not there; install it: apt-get install qemu-system-x86" % QEMU)


def empty_disk(path):
    """A disk for the tests that want a real one, with an ext4 file system."""
    with open(path, "wb") as disk:
        disk.truncate(64 << 20)
    subprocess.run([shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin:/bin") or "mkfs.ext4", "-q", "-F", path], check=True)
    return path


RUNNING = set()


def end_all():
    """Ends all guests; those who wait for one hear that it has ended."""
    for running in list(RUNNING):
        running.process.kill()


class Guest:
    """A running guest. It is a context: qemu ends with it, and with this process, should that be killed."""

    def __init__(self, vmlinuz, initramfs, disk, console):
        self.console = console
        self.process = subprocess.Popen(
            # A CPU of the oldest kind that distributions still build for: Linux 7.3 dies of the newest one as qemu 7.2 emulates it.
            # Both CPUs in one thread of qemu's: where each has its own, one may run code that the other has just patched as it was
            # in between, and a 6.12 died of that several times, at a jump label of a tracepoint (handle_softirqs).
            ["setpriv", "--pdeathsig=KILL", "--", QEMU, "-nodefaults", "-no-user-config", "-machine", "pc", "-accel", "tcg,thread=single", "-cpu", "Nehalem",
             "-smp", "2", "-m", MEMORY, "-display", "none", "-no-reboot",
             "-serial", "file:" + console, "-serial", "stdio",
             # NVMe is built into these kernels. What a guest writes is gone with it.
             "-drive", "if=none,id=disk,format=raw,snapshot=on,file=" + disk, "-device", "nvme,serial=disk,drive=disk",
             "-kernel", vmlinuz, "-initrd", initramfs,
             # panic=-1: a kernel that panics reboots at once, which ends qemu.
             "-append", "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            # Ctrl-C is for the script, which then ends it.
            start_new_session=True)
        RUNNING.add(self)
        self.heard = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.heard.put(line.decode("utf-8", "replace").rstrip("\r\n"))
        self.heard.put(None)

    def lines(self, silence_s):
        """Its lines until it ends or says nothing for so long."""
        while True:
            try:
                line = self.heard.get(timeout=silence_s)
            except queue.Empty:
                return
            if line is None:
                return
            yield line

    def last_words(self, lines=30):
        """The end of its console: where a kernel that died says of what."""
        try:
            with open(self.console, encoding="utf-8", errors="replace") as text:
                return "".join(text.readlines()[-lines:])
        except OSError:
            return ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        RUNNING.discard(self)
        self.process.kill()
        self.process.wait()


def concatenated(to, *parts):
    """Archives one after the other, as the kernel unpacks them."""
    with open(to, "wb") as out:
        for part in parts:
            with open(part, "rb") as source:
                out.write(source.read())
            out.write(b"\0" * (-os.path.getsize(part) % 4))
    return to
