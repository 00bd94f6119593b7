/* Environment variables that name libraries, programs, files and folders: relative paths load nothing from the working
 * directory, and a process with more rights than its user ignores the variables. docs/security.md has the rules.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* device: host */
/* library: hostile */
/* alone: all; sets the environment, which a process reads once */
/* timeout: 120 */
#include "process.h"

#include <dirent.h>
#include <ftw.h>
#include <grp.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/stat.h>

/* The folder of a test, the hostile library, and the file that the library writes when it is loaded. */
static char folder[256], hostile[PATH_MAX], marker[320];

/* Variables that name folders or lists of folders in which libraries, programs or headers are searched. */
static const char *const SEARCHED[] = {"CUDA_HOME",   "CUDA_PATH", "PYTHONPATH",     "VIRTUAL_ENV", "CONDA_PREFIX",
                                       "HOME",        "PATH",      "XDG_CACHE_HOME", "TMPDIR",      "CXX"};
/* Variables that name one file or folder, where a relative path is an error. */
static const char *const NAMED[] = {"PLINTH_NCCL_LIBRARY", "PLINTH_NVRTC_LIBRARY",   "NVTX_INJECTION64_PATH",
                                    "PLINTH_CXX",          "PLINTH_KERNEL_CACHE_PATH"};
/* Where a hostile library lies below the working directory, and below its folder "relative". */
static const char *const PLACES[] = {
    "libnccl.so.2",
    "libnvrtc.so.13",
    "lib64/libnvrtc.so.13",
    "lib/libnvrtc.so.13",
    "nvidia/nccl/lib/libnccl.so.2",
    "nvidia/cu13/lib/libnvrtc.so.13",
    "lib/python3.99/site-packages/nvidia/nccl/lib/libnccl.so.2",
    "lib/python3.99/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
    ".local/lib/python3.99/site-packages/nvidia/nccl/lib/libnccl.so.2",
    ".local/lib/python3.99/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
    "tool.so",
};
static const char *const COMPILERS[] = {"c++", "g++", "clang++"};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Makes the folders above a path. */
static void make_parents(const char *path) {
  char part[PATH_MAX];
  for (size_t length = 1; path[length] != 0; length++) {
    if (path[length] == '/') {
      snprintf(part, sizeof part, "%.*s", (int)length, path);
      CHECK(mkdir(part, 0755) == 0 || errno == EEXIST);
    }
  }
}

static void make_folder(void) {
  const ssize_t length = readlink("/proc/self/exe", hostile, sizeof hostile - 16);
  CHECK(length > 0);
  hostile[length] = 0;
  strcpy(strrchr(hostile, '/') + 1, "hostile.so");
  strcpy(folder, "/tmp/plinth-test-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(marker, sizeof marker, "%s/loaded", folder);
  CHECK(setenv("HOSTILE_MARKER", marker, 1) == 0);
}

static void put_hostile_files(void) {
  for (int inner = 0; inner < 2; inner++) {
    char path[PATH_MAX];
    for (size_t place = 0; place < COUNT(PLACES); place++) {
      snprintf(path, sizeof path, "%s/%s%s", folder, inner == 0 ? "" : "relative/", PLACES[place]);
      make_parents(path);
      CHECK(symlink(hostile, path) == 0);
    }
    for (size_t index = 0; index < COUNT(COMPILERS); index++) {
      snprintf(path, sizeof path, "%s/%s%s", folder, inner == 0 ? "" : "relative/", COMPILERS[index]);
      FILE *script = fopen(path, "w");
      CHECK(script != NULL);
      fprintf(script, "#!/bin/sh\necho \"$0\" >>'%s'\n", marker);
      CHECK(fclose(script) == 0 && chmod(path, 0755) == 0);
    }
  }
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *place) {
  (void)found, (void)kind, (void)place;
  return remove(path);
}

static void remove_folder(void) { CHECK(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0); }

/* Returns the number of files and folders in the test's folder, at all depths. */
static int found_files;
static int count_one(const char *path, const struct stat *found, int kind, struct FTW *place) {
  (void)path, (void)found, (void)kind, (void)place;
  found_files++;
  return 0;
}

static int count_files(void) {
  found_files = 0;
  CHECK(nftw(folder, count_one, 16, FTW_PHYS) == 0);
  return found_files;
}

static bool is_marked(void) { return access(marker, F_OK) == 0; }

/* Calls that load every library that works without a GPU, compile a kernel, and use temporary and cached files. They may
 * fail. */
static void use_everything(void) {
  int32_t major = 0, minor = 0, patch = 0;
  void *image = NULL;
  size_t bytes = 0;
  char *name = NULL;
  plinth_jit_function_t function = NULL;
  (void)plinth_nccl_version(&major, &minor, &patch);
  (void)plinth_nvtx_mark("mark");
  const char *source = "extern \"C\" __global__ void nothing() {}";
  (void)plinth_nvrtc_compile(source, "nothing", "80", NULL, NULL, &image, &bytes, &name);
  CHECK_OK(plinth_jiterator_create_jit_fn("template <typename T> T twice(T x) { return x + x; }", NULL, 0, &function));
  float *memory = (float *)device_memory(sizeof(float), 0);
  DLTensor tensor = {memory, {2, 0}, 1, {2, 32, 1}, (int64_t[]){1}, NULL, 0};
  (void)plinth_jiterator_call(function, (const DLTensor *[]){&tensor}, 1, (DLTensor *[]){&tensor}, 1, NULL, 0, NULL);
}

static const char *variable, *value;

static void use_with_variable(void) {
  CHECK(chdir(folder) == 0);
  /* run.py sets it, so that other tests find NVRTC. */
  CHECK(unsetenv("PLINTH_NVRTC_LIBRARY") == 0);
  CHECK(setenv(variable, value, 1) == 0);
  use_everything();
}

static void expect_nothing_is_used(const char *name, const char *text) {
  const int before = count_files();
  variable = name;
  value = text;
  in_child(use_with_variable);
  if (is_marked() || count_files() != before) {
    char message[512];
    snprintf(message, sizeof message, "%s=\"%s\" used the working directory", name, text);
    harness_fail(__FILE__, __LINE__, message);
  }
}

TEST(relative_paths_use_nothing_of_the_working_directory) {
  static const char *const values[] = {"", ".", "relative", ":relative:."};
  make_folder();
  put_hostile_files();
  for (size_t name = 0; name < COUNT(SEARCHED); name++) {
    for (size_t index = 0; index < COUNT(values); index++) {
      expect_nothing_is_used(SEARCHED[name], values[index]);
    }
  }
  for (size_t name = 0; name < COUNT(NAMED); name++) {
    expect_nothing_is_used(NAMED[name], "");
    expect_nothing_is_used(NAMED[name], "./tool.so");
    expect_nothing_is_used(NAMED[name], "relative/tool.so");
  }
  expect_nothing_is_used("CXX", "./c++");
  expect_nothing_is_used("PLINTH_CXX", "relative/c++");
  remove_folder();
}

static void expect_used(const char *name, const char *text) {
  variable = name;
  value = text;
  in_child(use_with_variable);
  CHECK(is_marked());
  CHECK(unlink(marker) == 0);
}

/* The counterpart of the test above: with absolute paths the same files are used. */
TEST(absolute_paths_are_used) {
  char path[PATH_MAX];
  make_folder();
  put_hostile_files();
  expect_used("PYTHONPATH", folder);
  expect_used("CUDA_HOME", folder);
  expect_used("VIRTUAL_ENV", folder);
  expect_used("HOME", folder);
  snprintf(path, sizeof path, "%s/relative", folder);
  expect_used("PATH", path);
  snprintf(path, sizeof path, "%s/tool.so", folder);
  expect_used("PLINTH_NCCL_LIBRARY", path);
  expect_used("NVTX_INJECTION64_PATH", path);
  remove_folder();
}

static void expect_relative_is_refused(void) {
  int32_t major = 0, minor = 0, patch = 0;
  CHECK(setenv("PLINTH_NCCL_LIBRARY", "relative/tool.so", 1) == 0);
  CHECK_STATUS(plinth_nccl_version(&major, &minor, &patch), PLINTH_ERROR_NCCL_UNAVAILABLE);
  CHECK_MESSAGE("PLINTH_NCCL_LIBRARY");
  CHECK_MESSAGE("relative/tool.so: the path is relative; name an absolute path");
}

TEST(a_relative_path_is_named_in_the_error) { in_child(expect_relative_is_refused); }

/* ---- processes with more rights than their user */

#define OTHER_USER 65534
#define OTHER_GROUP 54321

/* Sets all variables to files that exist, uses everything, and prints whether the kernel treats this process as secure. */
HELPER(use_with_all_variables) {
  char path[PATH_MAX + 64];
  const char *base = getenv("HOSTILE_FOLDER");
  CHECK(base != NULL);
  for (size_t name = 0; name < COUNT(SEARCHED); name++) {
    CHECK(setenv(SEARCHED[name], base, 1) == 0);
  }
  CHECK(unsetenv("CXX") == 0);
  snprintf(path, sizeof path, "%s/tool.so", base);
  CHECK(setenv("PLINTH_NCCL_LIBRARY", path, 1) == 0);
  CHECK(setenv("PLINTH_NVRTC_LIBRARY", path, 1) == 0);
  CHECK(setenv("NVTX_INJECTION64_PATH", path, 1) == 0);
  snprintf(path, sizeof path, "%s/c++", base);
  CHECK(setenv("PLINTH_CXX", path, 1) == 0);
  snprintf(path, sizeof path, "%s/cache", base);
  CHECK(setenv("PLINTH_KERNEL_CACHE_PATH", path, 1) == 0);
  snprintf(path, sizeof path, "%s/log", base);
  CHECK(setenv("PLINTH_SANITIZER_LOG", path, 1) == 0);
  CHECK(setenv("PLINTH_SANITIZER", "collect", 1) == 0);
  CHECK(setenv("PLINTH_HOST_MEMORY_NAME", "plinth-test-environment", 1) == 0);
  CHECK(setenv("PLINTH_DEVICE", "host", 1) == 0);
  use_everything();
  const bool shares = access("/dev/shm/plinth-host-memory-65534-plinth-test-environment", F_OK) == 0;
  exit(getauxval(AT_SECURE) != 0 ? (shares ? 3 : 2) : (shares ? 1 : 0));
}

static char program[PATH_MAX];

/* Runs the copy of this program as another user. Returns its exit status; 126 if that is impossible. */
static int run_as_other_user(void) {
  int status = 0;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const gid_t group = OTHER_USER;
    if (setgroups(1, &group) != 0 || setresgid(group, group, group) != 0 ||
        setresuid(OTHER_USER, OTHER_USER, OTHER_USER) != 0 || chdir("/") != 0) {
      _exit(126);
    }
    execl(program, program, "use_with_all_variables", (char *)NULL);
    _exit(126);
  }
  CHECK_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void copy_program(void) {
  static char bytes[1 << 16];
  FILE *from = fopen("/proc/self/exe", "rb");
  FILE *to = fopen(program, "wb");
  size_t count = 0;
  CHECK(from != NULL && to != NULL);
  while ((count = fread(bytes, 1, sizeof bytes, from)) > 0) {
    CHECK_EQ(fwrite(bytes, 1, count, to), count);
  }
  CHECK(fclose(from) == 0 && fclose(to) == 0);
}

TEST(a_process_with_more_rights_than_its_user_ignores_the_variables) {
  char library[PATH_MAX];
  if (geteuid() != 0) {
    SKIP("only root can make a set-group-ID program of another group");
  }
  make_folder();
  put_hostile_files();
  /* The other user can write everything here, but not read the folders of the build. */
  snprintf(program, sizeof program, "%s/program", folder);
  copy_program();
  CHECK(chmod(folder, 0777) == 0 && chmod(program, 0755) == 0);
  CHECK(setenv("HOSTILE_FOLDER", folder, 1) == 0);
  const int plain = run_as_other_user();
  if (plain != 1) {
    snprintf(library, sizeof library, "another user cannot run the test's program: status %d", plain);
    remove_folder();
    SKIP(library);
  }
  CHECK(is_marked());
  CHECK(unlink(marker) == 0);
  snprintf(library, sizeof library, "%s/log", folder);
  CHECK(unlink(library) == 0);

  CHECK(chown(program, 0, OTHER_GROUP) == 0 && chmod(program, 02755) == 0);
  const int before = count_files();
  const int secure = run_as_other_user();
  if (secure == 1) {
    remove_folder();
    SKIP("set-group-ID bits have no effect here: no_new_privs, or the file system is mounted nosuid");
  }
  CHECK_EQ(secure, 2);
  CHECK(!is_marked());
  CHECK_EQ(count_files(), before);
  remove_folder();
}
