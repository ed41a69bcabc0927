/* Kills its process at the N-th system call that changes a file below a directory.
 *
 * Loaded into a node by LD_PRELOAD (tests/durability/hooked.py). Counts write, pwrite,
 * pwritev, fsync, fdatasync, sync_file_range, ftruncate, fallocate, rename, link, unlink and mkdir, and
 * open where it creates, over all threads and libraries. RocksDB's info log does not
 * count. With ONCELOG_TEST_TORN a write at the N-th call writes its first half.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;
static long kill_at;
static int torn;
static const char *below;
static size_t below_length;

__attribute__((constructor)) static void begin(void) {
  const char *number = getenv("ONCELOG_TEST_KILL_AT_CALL");
  kill_at = number ? atol(number) : 0;
  torn = getenv("ONCELOG_TEST_TORN") != NULL;
  below = getenv("ONCELOG_DATA_DIR");
  below_length = below ? strlen(below) : 0;
}

static int ours(const char *path) {
  if (!kill_at || !below || strncmp(path, below, below_length) != 0) return 0;
  const char *name = strrchr(path, '/');
  return !name || strncmp(name, "/LOG", 4) != 0;
}

static const char *name_of(int fd, char *path, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, size - 1);
  path[length < 0 ? 0 : length] = 0;
  return path;
}

static void die(const char *call, const char *path) {
  dprintf(2, "killed at call %ld: %s %s\n", kill_at, call, path);
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

static int due(const char *path) {
  return ours(path) && atomic_fetch_add(&calls, 1) + 1 == kill_at;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define BY_FD(call, fd)                               \
  char path[4096];                                    \
  if (kill_at && due(name_of(fd, path, sizeof path))) \
    die(call, path);
#define BY_PATH(call, path) \
  if (due(path)) die(call, path);

ssize_t write(int fd, const void *data, size_t size) {
  char path[4096];
  if (kill_at && fd > 2 && due(name_of(fd, path, sizeof path))) {
    if (torn) REAL(write)(fd, data, size / 2);
    die(torn ? "half of write" : "write", path);
  }
  return REAL(write)(fd, data, size);
}

static ssize_t at_place(int fd, const void *data, size_t size, off64_t at) {
  char path[4096];
  if (kill_at && due(name_of(fd, path, sizeof path))) {
    if (torn) REAL(pwrite64)(fd, data, size / 2, at);
    die(torn ? "half of pwrite" : "pwrite", path);
  }
  return REAL(pwrite64)(fd, data, size, at);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  return at_place(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  return at_place(fd, data, size, at);
}

static ssize_t parts_at_place(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
  char path[4096];
  if (kill_at && due(name_of(fd, path, sizeof path))) {
    if (torn)
      for (int i = 0; i <= count / 2; i++) {
        size_t size = i < count / 2 ? parts[i].iov_len : parts[i].iov_len / 2;
        REAL(pwrite64)(fd, parts[i].iov_base, size, at);
        at += size;
      }
    die(torn ? "half of pwritev" : "pwritev", path);
  }
  return REAL(pwritev64v2)(fd, parts, count, at, flags);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
  return parts_at_place(fd, parts, count, at, 0);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
  return parts_at_place(fd, parts, count, at, 0);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
  return parts_at_place(fd, parts, count, at, flags);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
  return parts_at_place(fd, parts, count, at, flags);
}

int fsync(int fd) {
  BY_FD("fsync", fd)
  return REAL(fsync)(fd);
}
int fdatasync(int fd) {
  BY_FD("fdatasync", fd)
  return REAL(fdatasync)(fd);
}
int sync_file_range(int fd, off64_t at, off64_t size, unsigned flags) {
  BY_FD("sync_file_range", fd)
  return REAL(sync_file_range)(fd, at, size, flags);
}
int ftruncate(int fd, off_t size) {
  BY_FD("ftruncate", fd)
  return REAL(ftruncate)(fd, size);
}
int ftruncate64(int fd, off64_t size) {
  BY_FD("ftruncate", fd)
  return REAL(ftruncate64)(fd, size);
}
int fallocate(int fd, int mode, off_t at, off_t size) {
  BY_FD("fallocate", fd)
  return REAL(fallocate)(fd, mode, at, size);
}
int fallocate64(int fd, int mode, off64_t at, off64_t size) {
  BY_FD("fallocate", fd)
  return REAL(fallocate64)(fd, mode, at, size);
}

int rename(const char *from, const char *to) {
  BY_PATH("rename to", to)
  return REAL(rename)(from, to);
}
int link(const char *from, const char *to) {
  BY_PATH("link to", to)
  return REAL(link)(from, to);
}
int linkat(int a, const char *from, int b, const char *to, int flags) {
  BY_PATH("link to", to)
  return REAL(linkat)(a, from, b, to, flags);
}
int unlink(const char *path) {
  BY_PATH("unlink", path)
  return REAL(unlink)(path);
}
int mkdir(const char *path, mode_t mode) {
  BY_PATH("mkdir", path)
  return REAL(mkdir)(path, mode);
}

#define OPEN(name)                                        \
  int name(const char *path, int flags, ...) {            \
    va_list more;                                         \
    va_start(more, flags);                                \
    mode_t mode = flags & O_CREAT ? va_arg(more, int) : 0; \
    va_end(more);                                         \
    if (flags & (O_CREAT | O_TRUNC)) {                    \
      BY_PATH("create", path)                             \
    }                                                     \
    return REAL(name)(path, flags, mode);                 \
  }
OPEN(open)
OPEN(open64)
