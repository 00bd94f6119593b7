/* The cache of compiled CUDA C++ on disk: reuse, and what makes a kernel be compiled again. SPDX-License-Identifier: MIT OR
 * Apache-2.0 */
/* timeout: 120 */
/* alone: all; sets the environment */
#include "kernel_caching.h"

static char headers[300];

static const char source[] = "#include \"outer.h\"\nextern \"C\" __global__ void f(int *x) { *x = VALUE; }";

static void write_header(const char *name, const char *text) {
  char path[400];
  snprintf(path, sizeof path, "%s/%s", headers, name);
  FILE *file = fopen(path, "w");
  CHECK(file != NULL);
  CHECK(fputs(text, file) >= 0);
  CHECK(fclose(file) == 0);
}

static void remove_header(const char *name) {
  char path[400];
  snprintf(path, sizeof path, "%s/%s", headers, name);
  CHECK(unlink(path) == 0);
}

static const char *expected_value;

/* Compiles the source to PTX, which has the value as a number. */
static void compile_once(void) {
  const char *folders[] = {headers, NULL};
  void *image = NULL;
  size_t bytes = 0;
  char *name = NULL;
  CHECK_OK(plinth_nvrtc_compile(source, "f", "compute_90", folders, NULL, &image, &bytes, &name));
  CHECK_TEXT(name, "f");
  CHECK(strstr((const char *)image, expected_value) != NULL);
  free(image);
  free(name);
}

static void expect_value(const char *value, int files) {
  expected_value = value;
  in_child(compile_once);
  CHECK_EQ(cached_kernels(NULL), files);
}

static void find_nvrtc(void) {
  void *image = NULL;
  size_t bytes = 0;
  char *name = NULL;
  const plinth_status_t status =
      plinth_nvrtc_compile("extern \"C\" __global__ void f() {}", "f", "90", NULL, NULL, &image, &bytes, &name);
  _exit(status == PLINTH_OK ? 0 : status == PLINTH_ERROR_COMPILER_UNAVAILABLE ? 3 : 4);
}

/* Makes the folders. Skips the test if NVRTC is not installed; the test itself does not load it, because it forks. */
static void begin(void) {
  int status = 0;
  CHECK(setenv("PLINTH_USE_KERNEL_CACHE", "0", 1) == 0);
  const pid_t child = start_child(find_nvrtc);
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  if (WEXITSTATUS(status) == 3 && getenv("PLINTH_NVRTC_LIBRARY") == NULL) {
    SKIP("NVRTC is not installed");
  }
  CHECK_EQ(WEXITSTATUS(status), 0);
  CHECK(unsetenv("PLINTH_USE_KERNEL_CACHE") == 0);
  use_own_folder();
  snprintf(headers, sizeof headers, "%s/headers", folder);
  CHECK(mkdir(headers, 0700) == 0);
  write_header("outer.h", "#include \"inner.h\"\n");
  write_header("inner.h", "#define VALUE 4711\n");
}

static void end(void) {
  remove_header("outer.h");
  remove_header("inner.h");
  CHECK(rmdir(headers) == 0);
  remove_own_folder();
}

TEST(a_kernel_is_compiled_once) {
  char path[640];
  begin();
  expect_value("4711", 1);
  CHECK_EQ(cached_kernels(path), 1);
  CHECK(strstr(path, "/f_compute_90_") != NULL);
  const ino_t before = status_of(path).st_ino;
  expect_value("4711", 1);
  /* A kernel that is compiled again is a new file, renamed to the old name. */
  CHECK_EQ(status_of(path).st_ino, before);
  end();
}

TEST(a_changed_header_is_compiled_again) {
  begin();
  expect_value("4711", 1);
  write_header("inner.h", "#define VALUE 4712\n");
  expect_value("4712", 2);
  write_header("inner.h", "#define VALUE 4711\n");
  expect_value("4711", 2);
  /* The same header, with another text in a condition that does not hold. */
  write_header("inner.h", "#define VALUE 4711\n#if 0\n#endif\n");
  expect_value("4711", 3);
  end();
}

TEST(a_computed_include_is_not_cached) {
  begin();
  write_header("outer.h", "#define NAME \"inner.h\"\n#include NAME\n");
  expect_value("4711", 0);
  write_header("inner.h", "#define VALUE 4713\n");
  expect_value("4713", 0);
  end();
}

TEST(a_damaged_image_is_compiled_again) {
  char path[640];
  begin();
  expect_value("4711", 1);
  CHECK_EQ(cached_kernels(path), 1);
  const struct stat whole = status_of(path);
  CHECK(truncate(path, whole.st_size / 2) == 0);
  expect_value("4711", 1);
  CHECK_EQ(status_of(path).st_size, whole.st_size);
  end();
}

TEST(processes_that_compile_at_the_same_time_share_one_file) {
  enum { PROCESSES = 4 };
  pid_t children[PROCESSES];
  begin();
  expected_value = "4711";
  for (int index = 0; index < PROCESSES; index++) {
    children[index] = start_child(compile_once);
  }
  for (int index = 0; index < PROCESSES; index++) {
    expect_child(children[index], 0);
  }
  CHECK_EQ(cached_kernels(NULL), 1);
  end();
}

TEST(the_cache_is_bounded_and_can_be_disabled) {
  begin();
  CHECK(setenv("PLINTH_KERNEL_CACHE_MAX_BYTES", "1", 1) == 0);
  expect_value("4711", 0);
  CHECK(unsetenv("PLINTH_KERNEL_CACHE_MAX_BYTES") == 0);
  CHECK(setenv("PLINTH_USE_KERNEL_CACHE", "0", 1) == 0);
  expect_value("4711", 0);
  end();
}

static void compile_with_a_wrong_limit(void) {
  void *image = UNTOUCHED_POINTER;
  size_t bytes = 0;
  char *name = NULL;
  CHECK_STATUS(plinth_nvrtc_compile("", "f", "90", NULL, NULL, &image, &bytes, &name), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_KERNEL_CACHE_MAX_BYTES is \"much\"");
  CHECK_SAME(image, UNTOUCHED_POINTER);
}

TEST(a_wrong_limit_is_an_error) {
  begin();
  CHECK(setenv("PLINTH_KERNEL_CACHE_MAX_BYTES", "much", 1) == 0);
  in_child(compile_with_a_wrong_limit);
  end();
}
