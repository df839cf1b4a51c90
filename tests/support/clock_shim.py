"""Clocks that jump: a small library, put before the system's, adds an offset to the time of a process."""

import mmap
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long zero, *offset;

static long seconds(void) {
    if (!offset) {
        const char *path = getenv("CLOCK_OFFSET_FILE");
        int fd = path ? open(path, O_RDONLY) : -1;
        void *page = fd < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
        offset = page == MAP_FAILED ? &zero : (volatile long *)page;
    }
    return *offset;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int status = (int)syscall(SYS_clock_gettime, id, t);
    if (!status && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += seconds();
    return status;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The clock of all processes that are started with ``settings`` in their environment."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._file = folder / "offset"
        self._file.write_bytes(bytes(mmap.PAGESIZE))
        self.settings = {"LD_PRELOAD": str(_library(folder)), "CLOCK_OFFSET_FILE": str(self._file)}

    def jump_to(self, offset_s: int) -> None:
        """From now on the clock is so far ahead of the true one, or behind it."""
        with self._file.open("r+b") as file:
            file.write(offset_s.to_bytes(8, "little", signed=True))


class Clocks:
    """One of the store, one of all services and workers."""

    def __init__(self, folder: Path) -> None:
        self.store, self.services = Clock(folder / "store"), Clock(folder / "services")

    def jump_to(self, offset_s: int) -> None:
        self.store.jump_to(offset_s)
        self.services.jump_to(offset_s)


def _library(folder: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = folder / "clock.so"
    subprocess.run(
        [compiler, "-x", "c", "-shared", "-fPIC", "-O1", "-o", str(library), "-"],
        input=SOURCE.encode(),
        check=True,
        capture_output=True,
    )
    return library
