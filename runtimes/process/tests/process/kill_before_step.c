/* Kills the program into which it is preloaded just before its step number KILL_BEFORE_STEP.
 *
 * A step is what outlasts the program or what another process notices: a directory, a file or a name made, data
 * written to a file or a pipe, a process started. The program itself knows nothing of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long last;
static atomic_long done;
static const char *note;

/* Only agents and supervisors are `PROGRAM … run DIRECTORY…`; what a supervisor launches is not. */
__attribute__((constructor)) static void look(int argc, char **argv)
{
    const char *step = getenv("KILL_BEFORE_STEP");
    note = getenv("KILLED_BEFORE_STEP");
    for (int i = 1; step && note && i < argc; i++)
        if (strcmp(argv[i], "run") == 0)
            last = atol(step);
}

static void step(void)
{
    if (last == 0 || atomic_fetch_add(&done, 1) + 1 != last)
        return;
    syscall(SYS_openat, AT_FDCWD, note, O_CREAT | O_WRONLY, 0600);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* How the program's own call is made. */
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int mkdir(const char *path, mode_t mode)
{
    step();
    return REAL(mkdir)(path, mode);
}

int rename(const char *from, const char *to)
{
    step();
    return REAL(rename)(from, to);
}

int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        step();
    }
    return REAL(open64)(path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t size)
{
    struct stat to;
    /* What threads of a program tell each other goes through neither. */
    if (fstat(fd, &to) == 0 && (S_ISREG(to.st_mode) || S_ISFIFO(to.st_mode)))
        step();
    return REAL(write)(fd, data, size);
}

int posix_spawnp(pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *restrict attributes, char *const *restrict argv, char *const *restrict env)
{
    step();
    return REAL(posix_spawnp)(pid, file, actions, attributes, argv, env);
}
