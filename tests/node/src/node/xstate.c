/* Has user-mode Linux run on processors whose registers it has no room for.
 *
 * It hands the kernel as many bytes of a process's extended registers as the largest processor had when
 * it was written, and the kernel takes all of them or none. What it does not know keeps its initial
 * state: its processes cannot have used it. Preloaded into linux.uml. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

/* NT_X86_XSTATE of <elf.h>, whose header clashes with the above. */
#define XSTATE ((void *)0x202)
/* Where the image says which of its parts are not in their initial state, in units of eight bytes. */
#define HEADER (512 / 8)
/* The parts that end before 2696 bytes: all up to the protection keys. */
#define KNOWN 0x3ff

long ptrace(enum __ptrace_request request, ...)
{
    static long (*next)(enum __ptrace_request, pid_t, void *, void *);
    static uint64_t image[8192];
    va_list list;
    va_start(list, request);
    pid_t pid = va_arg(list, pid_t);
    void *addr = va_arg(list, void *), *data = va_arg(list, void *);
    va_end(list);
    if (!next)
        next = (long (*)(enum __ptrace_request, pid_t, void *, void *))dlsym(RTLD_NEXT, "ptrace");
    if (request != PTRACE_SETREGSET || addr != XSTATE)
        return next(request, pid, addr, data);
    struct iovec *given = data, whole = { image, sizeof image };
    if (next(PTRACE_GETREGSET, pid, addr, &whole) || whole.iov_len <= given->iov_len)
        return next(request, pid, addr, data);
    memcpy(image, given->iov_base, given->iov_len);
    memset((char *)image + given->iov_len, 0, whole.iov_len - given->iov_len);
    image[HEADER] &= KNOWN;
    return next(request, pid, addr, &whole);
}
