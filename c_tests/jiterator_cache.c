/* Kernels that are kept on disk: found again, and made again where what was kept is damaged or not to be believed; and what is
 * said without a compiler. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 120 */
/* alone: all; sets the environment */
#include "jitting.h"
#include "process.h"

#include <dirent.h>
#include <sys/stat.h>

static char folder[256], kernels[320];

/* A folder of this test's own, in which the library is to keep kernels. */
static void keep_in_own_folder(void) {
  const char *temporary = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/plinth-test-XXXXXX", temporary != NULL ? temporary : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(kernels, sizeof kernels, "%s/a/b", folder);
  CHECK(setenv("PLINTH_KERNEL_CACHE_PATH", kernels, 1) == 0);
}

/* How many files are kept, and the path of one of them. */
static int kept(char path[640]) {
  DIR *opened = opendir(kernels);
  struct dirent *entry;
  int count = 0;
  if (opened == NULL) {
    return 0;
  }
  while ((entry = readdir(opened)) != NULL) {
    if (entry->d_name[0] != '.') {
      count++;
      if (path != NULL) {
        snprintf(path, 640, "%s/%s", kernels, entry->d_name);
      }
    }
  }
  closedir(opened);
  return count;
}

static void remove_own_folder(void) {
  char path[640], parent[300];
  (void)chmod(kernels, 0700);
  while (kept(path) > 0) {
    CHECK(unlink(path) == 0);
  }
  (void)rmdir(kernels);
  snprintf(parent, sizeof parent, "%s/a", folder);
  (void)rmdir(parent);
  CHECK(rmdir(folder) == 0);
}

static struct stat status_of(const char *path) {
  struct stat found;
  CHECK(stat(path, &found) == 0);
  return found;
}

static void add_once(void) {
  plinth_jit_function_t add = jit(ADD);
  const int64_t count = 100;
  tensor x, y, out;
  make_row(&x, F32, count, 1);
  make_row(&y, F32, count, 2);
  make(&out, F32, 1, &count, NULL, 0);
  expect_call(add, &x, &y, &out, model_add);
  drop(&x);
  drop(&y);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

TEST(a_kernel_is_kept_for_the_next_process) {
  char path[640];
  keep_in_own_folder();
  in_child(add_once);
  CHECK_EQ(kept(path), 1);
  CHECK(strstr(path, "/plinth_jit_add_") != NULL);
  CHECK_EQ(status_of(kernels).st_mode & 0777, 0700);
  CHECK_EQ(status_of(path).st_mode & 0777, 0600);
  const ino_t before = status_of(path).st_ino;
  in_child(add_once);
  CHECK_EQ(kept(NULL), 1);
  /* What is made anew is another file, renamed to the old one's name. */
  CHECK_EQ(status_of(path).st_ino, before);
  remove_own_folder();
}

TEST(a_damaged_kernel_is_made_again) {
  char path[640];
  keep_in_own_folder();
  in_child(add_once);
  CHECK_EQ(kept(path), 1);
  const struct stat whole = status_of(path);
  for (int damage = 0; damage < 4; damage++) {
    FILE *file = fopen(path, damage < 2 ? "r+b" : "wb");
    CHECK(file != NULL);
    if (damage < 2) {
      CHECK(fseek(file, damage == 0 ? whole.st_size / 2 : 3, SEEK_SET) == 0);
    }
    if (damage < 3) {
      CHECK(fputs("damage", file) >= 0);
    }
    CHECK(fclose(file) == 0);
    in_child(add_once);
    CHECK_EQ(kept(NULL), 1);
    CHECK_EQ(status_of(path).st_size, whole.st_size);
    /* And what was made is whole: it stays. */
    const ino_t made = status_of(path).st_ino;
    in_child(add_once);
    CHECK_EQ(status_of(path).st_ino, made);
  }
  remove_own_folder();
}

TEST(a_kernel_that_others_could_have_written_is_made_again) {
  char path[640];
  keep_in_own_folder();
  in_child(add_once);
  CHECK_EQ(kept(path), 1);
  const ino_t before = status_of(path).st_ino;
  CHECK(chmod(path, 0666) == 0);
  in_child(add_once);
  CHECK(status_of(path).st_ino != before);
  CHECK_EQ(status_of(path).st_mode & 0777, 0600);
  remove_own_folder();
}

TEST(a_folder_that_cannot_be_written_to_is_done_without) {
  char path[640];
  keep_in_own_folder();
  in_child(add_once);
  CHECK_EQ(kept(path), 1);
  CHECK(unlink(path) == 0);
  /* To all, so that it is not believed even where the user may do everything. */
  CHECK(chmod(kernels, 0777) == 0);
  in_child(add_once);
  CHECK_EQ(kept(NULL), 0);
  CHECK(chmod(kernels, 0500) == 0);
  in_child(add_once);
  CHECK_EQ(kept(NULL), geteuid() == 0 ? 1 : 0);
  CHECK(setenv("PLINTH_KERNEL_CACHE_PATH", "/dev/null/kernels", 1) == 0);
  in_child(add_once);
  remove_own_folder();
}

TEST(no_cache_is_kept_where_none_is_wanted) {
  keep_in_own_folder();
  CHECK(setenv("PLINTH_USE_KERNEL_CACHE", "0", 1) == 0);
  in_child(add_once);
  CHECK_EQ(kept(NULL), 0);
  remove_own_folder();
}

TEST(without_a_path_kernels_are_kept_where_users_caches_are) {
  char wanted[300];
  keep_in_own_folder();
  CHECK(unsetenv("PLINTH_KERNEL_CACHE_PATH") == 0);
  /* The driver has a cache of its own there. */
  CHECK(setenv("CUDA_CACHE_DISABLE", "1", 1) == 0);
  for (int variant = 0; variant < 2; variant++) {
    char below[640];
    CHECK(setenv("HOME", folder, 1) == 0);
    CHECK((variant == 0 ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", folder, 1)) == 0);
    snprintf(wanted, sizeof wanted, "%s%s/plinth", folder, variant == 0 ? "/.cache" : "");
    snprintf(kernels, sizeof kernels, "%s/kernels", wanted);
    in_child(add_once);
    CHECK_EQ(kept(below), 1);
    CHECK(unlink(below) == 0);
    CHECK(rmdir(kernels) == 0);
    CHECK(rmdir(wanted) == 0);
  }
  snprintf(wanted, sizeof wanted, "%s/.cache", folder);
  CHECK(rmdir(wanted) == 0);
  CHECK(rmdir(folder) == 0);
}

TEST(many_processes_at_once_keep_one_kernel) {
  pid_t children[6];
  keep_in_own_folder();
  for (int index = 0; index < 6; index++) {
    children[index] = start_child(add_once);
  }
  for (int index = 0; index < 6; index++) {
    expect_child(children[index], 0);
  }
  CHECK_EQ(kept(NULL), 1);
  in_child(add_once);
  remove_own_folder();
}

/* Nothing that the compilers wrote is left. */
static void expect_nothing_is_left(void) {
  char pattern[64];
  const char *temporary = getenv("TMPDIR");
  DIR *opened = opendir(temporary != NULL ? temporary : "/tmp");
  struct dirent *entry;
  CHECK(opened != NULL);
  snprintf(pattern, sizeof pattern, "plinth-%d-", (int)getpid());
  while ((entry = readdir(opened)) != NULL) {
    CHECK(strncmp(entry->d_name, pattern, strlen(pattern)) != 0);
  }
  closedir(opened);
}

TEST(nothing_is_left_behind) {
  CHECK(setenv("PLINTH_USE_KERNEL_CACHE", "0", 1) == 0);
  add_once();
  expect_nothing_is_left();
  plinth_jit_function_t wrong = jit("template <typename T> T f(T x) { return nonsense; }");
  const int64_t count = 3;
  tensor x;
  make_row(&x, F32, count, 1);
  CHECK_STATUS(call1(wrong, &x, &x, NULL), PLINTH_ERROR_COMPILATION_FAILED);
  expect_nothing_is_left();
  drop(&x);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(wrong));
}

TEST(without_a_compiler_calls_say_so) {
  CHECK(setenv("PLINTH_USE_KERNEL_CACHE", "0", 1) == 0);
  CHECK(setenv("PLINTH_CXX", "/nowhere/c++", 1) == 0);
  CHECK(setenv("PLINTH_NVRTC_LIBRARY", "/nowhere/libnvrtc.so", 1) == 0);
  plinth_jit_function_t add = jit(ADD);
  const char *expected = on_host_device() ? "PLINTH_CXX cannot be used" : "PLINTH_NVRTC_LIBRARY cannot be loaded";
  const int64_t count = 3;
  tensor x;
  make_row(&x, F32, count, 1);
  CHECK_STATUS(call2(add, &x, &x, &x, NULL), PLINTH_ERROR_COMPILER_UNAVAILABLE);
  CHECK_MESSAGE(expected);
  CHECK_MESSAGE("nowhere");
  drop(&x);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}
