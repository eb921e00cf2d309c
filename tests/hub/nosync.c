/* A disk that forgets what was not synced: preloaded into a pull, it notes every write to
 * `.part` and `.state` files and every sync, so that a test can undo what a power cut would.
 * Lines: "w PATH OFFSET LENGTH" and "s PATH"; a write counts as synced only by a sync that began
 * after it had ended. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int path_of(int fd, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, size - 1);
    if (n <= 0)
        return 0;
    path[n] = 0;
    return strstr(path, ".part") || strstr(path, ".state");
}

static void note(const char *line)
{
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    static int fd = -1;
    pthread_mutex_lock(&lock);
    if (fd < 0)
        fd = open(getenv("NOSYNC_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (real(fd, line, strlen(line)) < 0)
        abort();
    pthread_mutex_unlock(&lock);
}

ssize_t pwrite(int fd, const void *p, size_t size, off_t at)
{
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    char path[512], line[640];
    int is_ours = path_of(fd, path, sizeof path);
    if (is_ours) { /* before: a kill in between must not hide it */
        snprintf(line, sizeof line, "w %s %lld %zu\n", path, (long long)at, size);
        note(line);
    }
    return real(fd, p, size, at);
}

ssize_t write(int fd, const void *p, size_t size)
{
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char path[512], line[640];
    if (path_of(fd, path, sizeof path)) {
        snprintf(line, sizeof line, "w %s %lld %zu\n", path, (long long)lseek(fd, 0, SEEK_END),
                 size);
        note(line);
    }
    return real(fd, p, size);
}

static int sync_with(const char *name, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    char path[512], line[640];
    int is_ours = path_of(fd, path, sizeof path);
    if (is_ours) {
        snprintf(line, sizeof line, "b %s\n", path);
        note(line);
    }
    int result = real(fd);
    if (is_ours && result == 0) {
        snprintf(line, sizeof line, "s %s\n", path);
        note(line);
    }
    return result;
}

int fdatasync(int fd) { return sync_with("fdatasync", fd); }
int fsync(int fd) { return sync_with("fsync", fd); }
