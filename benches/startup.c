/* Measures the start-up time to a first stream: plinth and the bare driver alternate, each in fresh processes.
 *
 * Usage: startup [ROUNDS [LIBPLINTH]]. The program is not linked with either library, because loading them is timed too.
 * The exit status is 77 without an NVIDIA driver. Run it with `make bench`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ROUNDS = 101 };

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "no %s\n", name);
    exit(2);
  }
  return found;
}

/* Calls cuInit, retains the primary context and creates a stream, as any program must. */
static void bare(void) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (!cuda) {
    fprintf(stderr, "%s\n", dlerror());
    exit(77);
  }
  unsigned (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*set)(void *);
  unsigned (*create)(void **, unsigned, int);
  void *found;
  int device;
  void *context, *stream;
  found = symbol(cuda, "cuInit"), memcpy(&init, &found, sizeof found);
  found = symbol(cuda, "cuDeviceGet"), memcpy(&get, &found, sizeof found);
  found = symbol(cuda, "cuDevicePrimaryCtxRetain"), memcpy(&retain, &found, sizeof found);
  found = symbol(cuda, "cuCtxSetCurrent"), memcpy(&set, &found, sizeof found);
  found = symbol(cuda, "cuStreamCreateWithPriority"), memcpy(&create, &found, sizeof found);
  if (init(0) || get(&device, 0) || retain(&context, device) || set(context) || create(&stream, 1, 0)) exit(2);
}

static void plinth(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  int (*create)(int, int, void **);
  void *found = symbol(library, "plinth_stream_create"), *stream;
  memcpy(&create, &found, sizeof found);
  if (create(0, 0, &stream)) exit(2);
}

/* Returns the milliseconds that a child process took, by its own clock. Exits if the child fails. */
static double child(const char *path) {
  int channel[2];
  double spent = -1;
  if (pipe(channel)) exit(2);
  pid_t process = fork();
  if (process == 0) {
    double start = now_ms();
    if (path) plinth(path);
    else bare();
    spent = now_ms() - start;
    if (write(channel[1], &spent, sizeof spent) != sizeof spent) _exit(2);
    _exit(0);
  }
  close(channel[1]);
  int status = 0;
  ssize_t got = read(channel[0], &spent, sizeof spent);
  close(channel[0]);
  waitpid(process, &status, 0);
  if (got != sizeof spent || status != 0) exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
  return spent;
}

static int ascending(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

int main(int count, char **arguments) {
  static double ours[MAX_ROUNDS], theirs[MAX_ROUNDS];
  int rounds = count > 1 ? atoi(arguments[1]) : 11;
  const char *library = count > 2 ? arguments[2] : "libplinth.so.0.2";
  if (rounds < 1 || rounds > MAX_ROUNDS) {
    fprintf(stderr, "usage: %s [ROUNDS up to %d [LIBPLINTH]]\n", arguments[0], MAX_ROUNDS);
    return 2;
  }
  for (int i = 0; i < rounds; i++) {
    theirs[i] = child(NULL);
    ours[i] = child(library);
  }
  qsort(ours, (size_t)rounds, sizeof *ours, ascending);
  qsort(theirs, (size_t)rounds, sizeof *theirs, ascending);
  printf("start-up to a first stream, ms, %d processes each: plinth %.2f (%.2f to %.2f), "
         "bare driver %.2f (%.2f to %.2f), %+.2f\n",
         rounds, ours[rounds / 2], ours[0], ours[rounds - 1], theirs[rounds / 2], theirs[0], theirs[rounds - 1],
         ours[rounds / 2] - theirs[rounds / 2]);
  return 0;
}
