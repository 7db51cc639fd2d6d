/* Makes a disk fail on demand, for a process that is started with this library in LD_PRELOAD.
   While the folder $SABOTAGE has a file `fsync`, syncs fail with EIO; while it has `full`, writes fail with ENOSPC.
   Only regular files above descriptor 2 are concerned: no socket, no pipe, no log. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int asked(const char *what) {
    const char *folder = getenv("SABOTAGE");
    char path[4096];
    struct stat found;
    if (!folder) return 0;
    snprintf(path, sizeof path, "%s/%s", folder, what);
    return stat(path, &found) == 0;
}

/* Leaves a file `fsync.hit` or `full.hit`, which proves that a call failed. */
static void note(const char *what) {
    const char *folder = getenv("SABOTAGE");
    char path[4096];
    int fd;
    snprintf(path, sizeof path, "%s/%s.hit", folder, what);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    if (fd >= 0) close(fd);
}

static int concerned(int fd) {
    struct stat found;
    return fd > 2 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

#define FAILS(what, code) \
    if (asked(what) && concerned(fd)) { note(what); errno = code; return -1; }
#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name);

int fsync(int fd) { REAL(int, "fsync", int) FAILS("fsync", EIO) return real(fd); }
int fdatasync(int fd) { REAL(int, "fdatasync", int) FAILS("fsync", EIO) return real(fd); }
ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t) FAILS("full", ENOSPC) return real(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t) FAILS("full", ENOSPC) return real(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t) FAILS("full", ENOSPC) return real(fd, data, size, at);
}
