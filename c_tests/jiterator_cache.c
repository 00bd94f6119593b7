/* The kernel cache on disk: reuse, replacement of damaged and untrusted files, and errors without a compiler.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 120 */
/* alone: all; sets the environment */
#include "jitting.h"
#include "kernel_caching.h"
#include "logging.h"

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

/* The warning that a process expects in its log, once; NULL for none. */
static const char *expected_warning;

static void add_with_log(void) {
  log_collect(PLINTH_LOG_WARNING);
  add_once();
  CHECK_EQ(logged.count, expected_warning == NULL ? 0 : 1);
  if (expected_warning != NULL) {
    CHECK_LOGGED(PLINTH_LOG_WARNING, expected_warning);
    CHECK_LOGGED(PLINTH_LOG_WARNING, "plinth_jiterator_call: ");
  }
}

TEST(the_log_has_why_the_cache_is_not_used) {
  char path[640], folder_of_file[700];
  use_own_folder();
  expected_warning = NULL;
  in_child(add_with_log);
  in_child(add_with_log);
  CHECK_EQ(cached_kernels(path), 1);
  FILE *file = fopen(path, "r+b");
  CHECK(file != NULL && fputs("damage", file) >= 0 && fclose(file) == 0);
  expected_warning = "is compiled again and replaced: the file is damaged";
  in_child(add_with_log);
  expected_warning = NULL;
  in_child(add_with_log);
  CHECK(chmod(path, 0666) == 0);
  expected_warning = "replaced: it is not a file of at most 1 GiB that only this user can write";
  in_child(add_with_log);
  CHECK(chmod(kernels, 0777) == 0);
  expected_warning = "it is not a folder that only this user can write; remove the write permission of others";
  in_child(add_with_log);
  CHECK(chmod(kernels, 0700) == 0);
  snprintf(folder_of_file, sizeof folder_of_file, "%s/kernels", path);
  CHECK(setenv("PLINTH_KERNEL_CACHE_PATH", folder_of_file, 1) == 0);
  expected_warning = "kernels: Not a directory (os error 20); make the folder writable, or set PLINTH_KERNEL_CACHE_PATH";
  in_child(add_with_log);
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

static char temporary[64], slow_compiler[80];

static void use_own_temporary_folder(void) {
  strcpy(temporary, "/tmp/plinth-test-XXXXXX");
  CHECK(mkdtemp(temporary) != NULL);
  snprintf(slow_compiler, sizeof slow_compiler, "%s/slow", temporary);
  CHECK(setenv("TMPDIR", temporary, 1) == 0);
  CHECK(setenv("PLINTH_USE_KERNEL_CACHE", "0", 1) == 0);
}

static int temporary_folders(void) {
  DIR *opened = opendir(temporary);
  struct dirent *entry;
  int count = 0;
  CHECK(opened != NULL);
  while ((entry = readdir(opened)) != NULL) {
    count += strncmp(entry->d_name, "plinth-", 7) == 0;
  }
  closedir(opened);
  return count;
}

/* No file of the compilers is left. */
static void expect_no_temporary_files(void) { CHECK_EQ(temporary_folders(), 0); }

static void remove_own_temporary_folder(void) {
  (void)unlink(slow_compiler);
  CHECK(rmdir(temporary) == 0);
}

static void compile_slowly(void) {
  FILE *script = fopen(slow_compiler, "w");
  CHECK(script != NULL);
  /* It answers the question for its version at once. */
  CHECK(fputs("#!/bin/sh\n[ \"$*\" = --version ] && exit 0\nexec sleep 5\n", script) >= 0);
  CHECK(fclose(script) == 0 && chmod(slow_compiler, 0700) == 0);
  CHECK(setenv("PLINTH_CXX", slow_compiler, 1) == 0);
  add_once();
}

TEST(the_next_process_removes_the_files_of_a_killed_one) {
  const char *device = getenv("PLINTH_DEVICE");
  if (device == NULL || strcmp(device, "host") != 0) {
    SKIP("is about the compiler of the host device");
  }
  use_own_temporary_folder();
  const pid_t child = start_child(compile_slowly);
  EVENTUALLY(temporary_folders() == 1);
  CHECK(kill(child, SIGKILL) == 0);
  CHECK_EQ(waitpid(child, NULL, 0), child);
  CHECK_EQ(temporary_folders(), 1);
  /* The killed process may have just forked for the compiler, and the fork has the lock of the folder until it executes it. */
  EVENTUALLY((in_child(add_once), temporary_folders() == 0));
  remove_own_temporary_folder();
}

TEST(no_temporary_files_are_left) {
  use_own_temporary_folder();
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
  remove_own_temporary_folder();
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
