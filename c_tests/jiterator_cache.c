/* The kernel cache on disk: reuse, replacement of damaged and untrusted files, and errors without a compiler.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 120 */
/* alone: all; sets the environment */
#include "jitting.h"
#include "process.h"

#include <dirent.h>
#include <sys/stat.h>

static char folder[256], kernels[320];

/* Makes a folder for this test, and sets it as the folder of the kernel cache. */
static void use_own_folder(void) {
  const char *temporary = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/plinth-test-XXXXXX", temporary != NULL ? temporary : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(kernels, sizeof kernels, "%s/a/b", folder);
  CHECK(setenv("PLINTH_KERNEL_CACHE_PATH", kernels, 1) == 0);
}

/* Returns the number of cached kernels, and the path of one. */
static int cached_kernels(char path[640]) {
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
  while (cached_kernels(path) > 0) {
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

TEST(a_kernel_is_cached_for_the_next_process) {
  char path[640];
  use_own_folder();
  in_child(add_once);
  CHECK_EQ(cached_kernels(path), 1);
  CHECK(strstr(path, "/plinth_jit_add_") != NULL);
  CHECK_EQ(status_of(kernels).st_mode & 0777, 0700);
  CHECK_EQ(status_of(path).st_mode & 0777, 0600);
  const ino_t before = status_of(path).st_ino;
  in_child(add_once);
  CHECK_EQ(cached_kernels(NULL), 1);
  /* A kernel that is compiled again is a new file, renamed to the old name. */
  CHECK_EQ(status_of(path).st_ino, before);
  remove_own_folder();
}

TEST(a_damaged_kernel_is_compiled_again) {
  char path[640];
  use_own_folder();
  in_child(add_once);
  CHECK_EQ(cached_kernels(path), 1);
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
    CHECK_EQ(cached_kernels(NULL), 1);
    CHECK_EQ(status_of(path).st_size, whole.st_size);
    /* The new file is valid: it is reused. */
    const ino_t made = status_of(path).st_ino;
    in_child(add_once);
    CHECK_EQ(status_of(path).st_ino, made);
  }
  remove_own_folder();
}

TEST(a_kernel_that_others_can_write_is_compiled_again) {
  char path[640];
  use_own_folder();
  in_child(add_once);
  CHECK_EQ(cached_kernels(path), 1);
  const ino_t before = status_of(path).st_ino;
  CHECK(chmod(path, 0666) == 0);
  in_child(add_once);
  CHECK(status_of(path).st_ino != before);
  CHECK_EQ(status_of(path).st_mode & 0777, 0600);
  remove_own_folder();
}

TEST(an_unusable_folder_is_not_used) {
  char path[640];
  use_own_folder();
  in_child(add_once);
  CHECK_EQ(cached_kernels(path), 1);
  CHECK(unlink(path) == 0);
  /* Writable by all, so that the library does not trust it even if the user is root. */
  CHECK(chmod(kernels, 0777) == 0);
  in_child(add_once);
  CHECK_EQ(cached_kernels(NULL), 0);
  CHECK(chmod(kernels, 0500) == 0);
  in_child(add_once);
  CHECK_EQ(cached_kernels(NULL), geteuid() == 0 ? 1 : 0);
  CHECK(setenv("PLINTH_KERNEL_CACHE_PATH", "/dev/null/kernels", 1) == 0);
  in_child(add_once);
  remove_own_folder();
}

TEST(the_cache_can_be_disabled) {
  use_own_folder();
  CHECK(setenv("PLINTH_USE_KERNEL_CACHE", "0", 1) == 0);
  in_child(add_once);
  CHECK_EQ(cached_kernels(NULL), 0);
  remove_own_folder();
}

TEST(the_default_folder_is_the_users_cache) {
  char expected[300];
  use_own_folder();
  CHECK(unsetenv("PLINTH_KERNEL_CACHE_PATH") == 0);
  /* The driver has a cache in the same folder. */
  CHECK(setenv("CUDA_CACHE_DISABLE", "1", 1) == 0);
  for (int variant = 0; variant < 2; variant++) {
    char path[640];
    CHECK(setenv("HOME", folder, 1) == 0);
    CHECK((variant == 0 ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", folder, 1)) == 0);
    snprintf(expected, sizeof expected, "%s%s/plinth", folder, variant == 0 ? "/.cache" : "");
    snprintf(kernels, sizeof kernels, "%s/kernels", expected);
    in_child(add_once);
    CHECK_EQ(cached_kernels(path), 1);
    CHECK(unlink(path) == 0);
    CHECK(rmdir(kernels) == 0);
    CHECK(rmdir(expected) == 0);
  }
  snprintf(expected, sizeof expected, "%s/.cache", folder);
  CHECK(rmdir(expected) == 0);
  CHECK(rmdir(folder) == 0);
}

TEST(concurrent_processes_cache_one_kernel) {
  pid_t children[6];
  use_own_folder();
  for (int index = 0; index < 6; index++) {
    children[index] = start_child(add_once);
  }
  for (int index = 0; index < 6; index++) {
    expect_child(children[index], 0);
  }
  CHECK_EQ(cached_kernels(NULL), 1);
  in_child(add_once);
  remove_own_folder();
}

/* No file of the compilers is left. */
static void expect_no_temporary_files(void) {
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

TEST(no_temporary_files_are_left) {
  CHECK(setenv("PLINTH_USE_KERNEL_CACHE", "0", 1) == 0);
  add_once();
  expect_no_temporary_files();
  plinth_jit_function_t wrong = jit("template <typename T> T f(T x) { return nonsense; }");
  const int64_t count = 3;
  tensor x;
  make_row(&x, F32, count, 1);
  CHECK_STATUS(call1(wrong, &x, &x, NULL), PLINTH_ERROR_COMPILATION_FAILED);
  expect_no_temporary_files();
  drop(&x);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(wrong));
}

TEST(a_missing_compiler_is_an_error) {
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
