/* The wall clock of a process, set wrong on purpose: the real one plus the microseconds in the file HEARLINE_CLOCK_FILE.
   Loaded by LD_PRELOAD; the harness writes the file, the step is seen at once. The monotonic clock is left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_us;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("HEARLINE_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) offset_us = page;
}

static void shift(struct timespec *at) {
    int64_t step = offset_us ? *offset_us : 0;
    int64_t ns = (int64_t)at->tv_nsec + step % 1000000 * 1000;
    at->tv_sec += step / 1000000;
    while (ns < 0) { ns += 1000000000; at->tv_sec--; }
    while (ns >= 1000000000) { ns -= 1000000000; at->tv_sec++; }
    at->tv_nsec = ns;
}

int clock_gettime(clockid_t which, struct timespec *at) {
    int status = (int)syscall(SYS_clock_gettime, which, at);
    if (status == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) shift(at);
    return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
