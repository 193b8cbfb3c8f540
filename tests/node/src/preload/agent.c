/* Deeds at moments of the agent's that nothing outside can meet. The agent itself knows nothing of them.
 *
 * On SIGUSR2 it exits with the code of an agent that has lost a task, without any more of its own code.
 *
 * After a record of a shutdown that has the text of the first line in the test's list so often, it takes the line away and
 * is killed. Stopped for a test to kill it, it would be continued by systemd, which stops units by SIGTERM and SIGCONT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
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

/* Whether the record has come to the first line of the list, a number, a space and a text, which is then no longer there. */
static int is_next(const char *path)
{
    static const char list[] = "/run/kill-at";
    static char record[1 << 20], lines[1024];
    char *text, *rest;
    load(path, record, sizeof record);
    size_t size = load(list, lines, sizeof lines);
    if (!size || !(rest = strchr(lines, '\n')))
        return 0;
    *rest++ = 0;
    long times = strtol(lines, &text, 10);
    size_t length = strlen(++text);
    for (char *at = record; times > 0 && (at = strstr(at, text)); at += length)
        times--;
    if (times)
        return 0;
    FILE *left = fopen(list, "we");
    return left && fwrite(rest, 1, lines + size - rest, left) == (size_t)(lines + size - rest) && !fclose(left);
}

int rename(const char *from, const char *to)
{
    int failed = ((__typeof__(&rename))dlsym(RTLD_NEXT, "rename"))(from, to), code = errno;
    if (is_agent && !failed && strcmp(to, "/run/winddown/shutdown.json") == 0 && is_next(to))
        kill(getpid(), SIGKILL);
    errno = code;
    return failed;
}
