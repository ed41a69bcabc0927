/* A disk that is slow, fails or lies, below a node's data directory.
 *
 * Loaded by LD_PRELOAD (tests/chaos/sick_node.py). It takes its orders from a file that the
 * harness and the node map both, ONCELOG_TEST_CONTROL; numbers of 64 bits:
 *
 *   0 clock   not ours: sick_node.py reads it
 *   1 delay   milliseconds that a sync takes longer
 *   2 hold    1: syncs wait until it is 0
 *   3 fail    so many syncs fail with EIO; each counts it down
 *   4 failed  how many have failed
 *   5 lie     1: syncs say that all is well, and do nothing
 *
 * After a sync that failed or lied, Linux holds the pages for clean: they are read as they were
 * written until they leave memory, and never reach the disk. So the bytes written since the last
 * real sync are noted in ONCELOG_TEST_CONTROL.dropped, a line "from to path" for each file of
 * the commit log; the harness takes them away once the node has ended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FILES 4096
enum { CLOCK, DELAY, HOLD, FAIL, FAILED, LIE, NUMBERS };

static volatile int64_t *control;
static char dropped[4096];
static const char *below;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { dev_t device; ino_t inode; off_t from, to; } dirty[FILES];

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("ONCELOG_TEST_CONTROL");
  below = getenv("ONCELOG_DATA_DIR");
  if (!path || !below) return;
  snprintf(dropped, sizeof dropped, "%s.dropped", path);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *at = mmap(NULL, NUMBERS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) control = at;
  close(fd);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Whether the file is one of the node's; its path. */
static int ours(int fd, char *path, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, size - 1);
  path[length < 0 ? 0 : length] = 0;
  return control && strncmp(path, below, strlen(below)) == 0;
}

/* The row of a file; a free one if it has none, -1 if all are taken. */
static int row_of(int fd) {
  struct stat is;
  if (fstat(fd, &is) != 0) return -1;
  int row = (int)((is.st_ino * 31 + is.st_dev) % FILES);
  for (int tried = 0; tried < FILES; tried++, row = (row + 1) % FILES) {
    if (dirty[row].inode == 0) {
      dirty[row].device = is.st_dev;
      dirty[row].inode = is.st_ino;
    }
    if (dirty[row].inode == is.st_ino && dirty[row].device == is.st_dev) return row;
  }
  return -1;
}

static void written(int fd, off_t at, ssize_t size) {
  char path[4096];
  if (size <= 0 || !control || !ours(fd, path, sizeof path)) return;
  pthread_mutex_lock(&lock);
  int row = row_of(fd);
  if (row >= 0) {
    if (dirty[row].to == 0 || at < dirty[row].from) dirty[row].from = at;
    if (at + size > dirty[row].to) dirty[row].to = at + size;
  }
  pthread_mutex_unlock(&lock);
}

static void synced(int fd, int lost, const char *path) {
  pthread_mutex_lock(&lock);
  int row = row_of(fd);
  if (row >= 0 && dirty[row].to > 0) {
    if (lost && strstr(path, "/log/")) {
      FILE *out = fopen(dropped, "ae");
      if (out) {
        fprintf(out, "%lld %lld %s\n", (long long)dirty[row].from, (long long)dirty[row].to, path);
        fclose(out);
      }
    }
    dirty[row].from = dirty[row].to = 0;
  }
  pthread_mutex_unlock(&lock);
}

static void rest(long milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* What becomes of a sync: 0 it is one, 1 it lies, -1 it fails. */
static int fate(void) {
  if (control[DELAY] > 0) rest(control[DELAY]);
  while (control[HOLD]) rest(5);
  if (control[FAIL] > 0) {
    __atomic_fetch_sub(&control[FAIL], 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&control[FAILED], 1, __ATOMIC_SEQ_CST);
    return -1;
  }
  return control[LIE] ? 1 : 0;
}

#define SYNC(name)                                    \
  int name(int fd) {                                  \
    char path[4096];                                  \
    if (!ours(fd, path, sizeof path)) return REAL(name)(fd); \
    int what = fate();                                \
    int done = what ? 0 : REAL(name)(fd);             \
    synced(fd, what != 0, path);                      \
    if (what >= 0) return done;                       \
    errno = EIO;                                      \
    return -1;                                        \
  }
SYNC(fsync)
SYNC(fdatasync)

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  ssize_t done = REAL(pwrite64)(fd, data, size, at);
  written(fd, at, done);
  return done;
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  ssize_t done = REAL(pwrite64)(fd, data, size, at);
  written(fd, at, done);
  return done;
}

#define PARTS(name, type, flag, given)                                   \
  ssize_t name(int fd, const struct iovec *parts, int count, type at flag) { \
    ssize_t done = REAL(pwritev64v2)(fd, parts, count, at, given);       \
    written(fd, at, done);                                               \
    return done;                                                         \
  }
#define NO_FLAG
#define WITH_FLAG , int flags
PARTS(pwritev, off_t, NO_FLAG, 0)
PARTS(pwritev64, off64_t, NO_FLAG, 0)
PARTS(pwritev2, off_t, WITH_FLAG, flags)
PARTS(pwritev64v2, off64_t, WITH_FLAG, flags)
