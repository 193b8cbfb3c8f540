/* Deeds at moments of the agent's that nothing outside can meet. The agent itself knows nothing of them.
 *
 * On SIGUSR2 it exits with the code of an agent that has lost a task, without any more of its own code.
 *
 * After a record of a shutdown that has a text of the test's so often, it stops with all its threads until it is killed.
 * With one thread held up it would take the disk for hung, and go on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

static size_t load(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, size - 1, file) : 0;
    text[length] = 0;
    if (file)
        fclose(file);
    return length;
}

/* Whether the record has come to where the test waits for it: a number, a space and a text. */
static int is_awaited(const char *path)
{
    static char record[1 << 20], awaited[256];
    char *text;
    load(path, record, sizeof record);
    if (!load("/run/hold-at", awaited, sizeof awaited))
        return 0;
    long times = strtol(awaited, &text, 10);
    size_t length = strlen(++text);
    for (char *at = record; times > 0 && (at = strstr(at, text)); at += length)
        times--;
    return times == 0;
}

int rename(const char *from, const char *to)
{
    int failed = ((__typeof__(&rename))dlsym(RTLD_NEXT, "rename"))(from, to), code = errno;
    if (is_agent && !failed && strcmp(to, "/run/winddown/shutdown.json") == 0 && is_awaited(to)) {
        close(open("/run/held", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        kill(getpid(), SIGSTOP);
    }
    errno = code;
    return failed;
}
