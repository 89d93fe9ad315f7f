# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of jobs share: start one with a deadline, see all of it end."""

import atexit
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid

DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))

# A shell gives what it starts in the background an ignored SIGINT and SIGQUIT, and weft run leaves
# ignored what it finds so: not what the tests are about.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


class Job:
    """A command whose descendants are known by a variable in their environment
    and, while they live, hold the write end of a pipe open."""

    last = None  # what finish returned last: shown when a test fails

    def __init__(self, argv, stdin=subprocess.DEVNULL, pass_fds=(), env=None, cwd=None, **popen):
        self.mark = uuid.uuid4().hex
        self.alive, held = os.pipe()
        self.process = subprocess.Popen(
            argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            pass_fds=(held, *pass_fds), cwd=cwd, **popen,
            env={**os.environ, **(env or {}), "WEFT_TEST_MARK": self.mark})
        os.close(held)

    def finish(self, deadline=DEADLINE):
        """Wait for the command itself: (code, output, errors)."""
        try:
            out, err = self.process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):  # the end of one may end another
                    os.kill(pid, 9)
            out, err = self.process.communicate()
            raise AssertionError(f"still running after {deadline} s\n{out}{err}") from None
        Job.last = self.process.returncode, out, err
        return Job.last

    def members(self):
        want = f"WEFT_TEST_MARK={self.mark}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    with open(f"/proc/{name}/environ", "rb") as f:
                        if want in f.read().split(b"\0"):  # a zombie's is empty
                            found.append(int(name))
                except OSError:
                    pass
        return found

    def gone_within(self, seconds):
        """Every process of the job has ended by then."""
        end = time.monotonic() + seconds
        if not select.select([self.alive], [], [], seconds)[0]:
            return False
        os.close(self.alive)
        for pid in self.members():  # those that hold no pipe
            try:
                fd = os.pidfd_open(pid)
            except OSError:
                continue
            ended = select.select([fd], [], [], max(0, end - time.monotonic()))[0]
            os.close(fd)
            if not ended:
                return False
        return not self.members()


def read_within(fd, count, seconds=DEADLINE):
    """[count] bytes from [fd], or fail."""
    end, got = time.monotonic() + seconds, b""
    while len(got) < count:
        if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
            raise AssertionError(f"{len(got)} of {count} came within {seconds} s")
        more = os.read(fd, count - len(got))
        if not more:
            raise AssertionError(f"{len(got)} of {count} came, then the end")
        got += more
    return got


def private_tmp():
    """Run this script again where nobody else makes files: in a mount namespace
    with empty /tmp, /var/tmp and /dev/shm. Its paths then begin with /mnt,
    where all is seen as it is. Returns False if this user may not do that, and
    True in the second run."""
    if os.environ.get("WEFT_TEST_PRIVATE"):
        return True
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        return False
    script = ("mount --rbind / /mnt && for d in /tmp /var/tmp /dev/shm; do "
              "mount -t tmpfs none $d || exit 70; done; exec \"$@\"")
    os.environ["WEFT_TEST_PRIVATE"] = "1"
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for name, value in os.environ.items():  # LSAN_OPTIONS, for one
        os.environ[name] = value.replace(f"={tree}/", f"=/mnt{tree}/")
    moved = ["/mnt" + os.path.abspath(a) if os.path.exists(a) else a for a in sys.argv]
    os.execvp("unshare", ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh",
                          sys.executable, *moved])
    return False


PLACES = ["/tmp", "/var/tmp", "/dev/shm"]


def own_tmp():
    """Without a mount namespace others make files in PLACES, too: give the jobs a TMPDIR, and look
    there only."""
    place = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    os.environ["TMPDIR"] = place
    PLACES[:] = [place]


def files():
    """Everything in the places where programs leave things, but what the thread sanitizer makes
    and removes in one breath as it starts, and leaves if it is killed there."""
    found = set()
    for top in PLACES:
        for where, dirs, names in os.walk(top):
            found.update(os.path.join(where, n) for n in dirs + names
                         if not n.startswith("tsan.rodata."))
    return found


def main(tests):
    """Run the functions [tests]; each fails by an AssertionError."""
    failed = 0
    for test in tests:
        start = time.monotonic()
        try:
            test()
            word = "ok"
        except AssertionError as e:
            failed += 1
            lines = [str(f.lineno) for f in traceback.extract_tb(e.__traceback__)[1:]]
            word = f"FAILED, lines {', '.join(lines)}: {e}; the last job printed {Job.last}"
        print(f"{test.__name__} {word} ({time.monotonic() - start:.2f} s)", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
