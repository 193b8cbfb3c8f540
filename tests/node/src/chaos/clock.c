/* Puts the wall clock of winddown's programs, and of no other, forward or back.
 *
 * The node's clock is the host's, which a test must leave alone. This is preloaded into the node's
 * programs; it answers for the C library as a clock would that somebody has set. The clocks that do
 * not jump stay as they are, as they do when a real clock is set. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Seconds, written by the test. */
static volatile const int64_t *jump;

__attribute__((constructor)) static void look(void)
{
    if (strcmp(program_invocation_short_name, "winddown") != 0 &&
        strcmp(program_invocation_short_name, "winddownd") != 0)
        return;
    int fd = open("/run/clock-jump", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof *jump, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED)
        jump = page;
}

static int is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed == 0 && jump && is_wall(clock))
        now->tv_sec += *jump;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return (time_t)-1;
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
