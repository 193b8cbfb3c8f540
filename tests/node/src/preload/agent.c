/* Deeds at moments of the agent's that nothing outside can meet. The agent itself knows nothing of them.
 *
 * On SIGUSR2 it exits with the code of an agent that has lost a task, without any more of its own code.
 *
 * After each record of a shutdown it opens a pipe, if that is there, and goes on when the test, which opens it too, has
 * closed it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int is_agent;

static void lose_task(int signal)
{
    (void)signal;
    _exit(9);
}

__attribute__((constructor)) static void look(void)
{
    is_agent = strcmp(program_invocation_short_name, "winddownd") == 0;
    if (is_agent)
        signal(SIGUSR2, lose_task);
}

int rename(const char *from, const char *to)
{
    int failed = ((__typeof__(&rename))dlsym(RTLD_NEXT, "rename"))(from, to), code = errno;
    if (is_agent && !failed && strcmp(to, "/run/winddown/shutdown.json") == 0) {
        char none;
        int go = open("/run/go-on", O_RDONLY | O_CLOEXEC);
        while (go >= 0 && read(go, &none, 1) < 0 && errno == EINTR)
            ;
        if (go >= 0)
            close(go);
    }
    errno = code;
    return failed;
}
