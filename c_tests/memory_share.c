/*
 * Processes that share a device: what one of them holds and does not use goes to the one that asks.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* last: idle_memory_above_the_floor_is_given_back */
/* last: memory_of_running_work_is_given_back_when_it_is_done */
/* last: used_memory_is_kept_until_the_process_dies */
/* last: a_stopped_process_does_not_hang_the_others */
/* last: the_budget_is_a_limit */
/* last: peaks_of_several_programs_take_turns */
/* alone: a_forked_child_has_no_share allocations_do_not_wait_for_a_process_that_stopped_while_it_joined wrong_arguments_are_refused; sets the environment */
#include "driver.h"
#include "library_threads.h"
#include "peering.h"

/* Of the device's memory: in hundredths. */
#define PART(hundredths) (total_memory(0) / 100 * (hundredths) / MIB * MIB)

static char name[64];

/* Names the processes of this test, and the memory of the host device that they share. */
static void name_processes(void) {
  if (getenv("TEST_SHARE") == NULL) {
    char text[64];
    snprintf(text, sizeof text, "share-%d", (int)getpid());
    setenv("TEST_SHARE", text, 1);
    setenv("PLINTH_HOST_MEMORY", "1GiB", 1);
    setenv("PLINTH_HOST_MEMORY_NAME", text, 1);
  }
  snprintf(name, sizeof name, "%s", getenv("TEST_SHARE"));
}

static plinth_memory_share_info_t info(void) {
  plinth_memory_share_info_t found = PLINTH_MEMORY_SHARE_INFO_INIT;
  CHECK_OK(plinth_memory_share_info(0, &found));
  CHECK_EQ(found.struct_size, sizeof found);
  return found;
}

static void share(size_t budget, size_t floor_bytes) {
  plinth_memory_share_options_t options = PLINTH_MEMORY_SHARE_OPTIONS_INIT;
  options.budget = budget;
  options.floor = floor_bytes;
  options.name = name;
  CHECK_OK(plinth_memory_share_enable(0, &options));
}

/* Whether the thread exists that answers other processes. */
static bool has_thread(void) { return count_threads("plinth-share") > 0; }

/* Holds and does not use 70 % of the memory, of which the floor is 30 %. */
HELPER(has_cached_memory) {
  name_processes();
  share(0, PART(30));
  unsigned char *block = alloc_on(PART(70), 0, NULL);
  release(block);
  CHECK(reserved(0) >= PART(70));
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'e');
  const plinth_memory_share_info_t after = info();
  CHECK(after.answered >= 1 && after.given >= PART(15));
  CHECK(reserved(0) >= PART(30) && reserved(0) <= PART(36));
  /* The rest is still usable. */
  block = alloc_on(PART(25), 0, NULL);
  put_pattern(block, 4096, 1);
  CHECK(has_pattern(block, 4096, 1));
  release(block);
  expect_sound();
}

TEST(idle_memory_above_the_floor_is_given_back) {
  name_processes();
  const peer other = start_peer("has_cached_memory", SOCK_STREAM);
  expect_to_hear(other.socket, 'h');
  share(0, 0);
  CHECK_EQ(info().processes, 2);
  CHECK(info().held_by_others >= PART(70));
  unsigned char *block = alloc_on(PART(45), 0, NULL);
  put_pattern(block, MIB, 3);
  CHECK(info().asked == 1 && info().answered == 0);
  /* Below its floor the other one is not asked. */
  void *too_much = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_caching_allocator_alloc(PART(40), 0, NULL, &too_much), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK(has_pattern(block, MIB, 3));
  say(other.socket, 'e');
  expect_end(other);
  /* A process that ended has given everything back. */
  EVENTUALLY(info().processes == 1);
  release(block);
  release(alloc_on(PART(90), 0, NULL));
  CHECK_OK(plinth_memory_share_disable(0));
  CHECK_EQ(info().processes, 0);
  expect_nothing_left();
}

/* Its stream has work while it is asked, for longer than the other one waits for a process that does not answer. */
HELPER(is_busy) {
  name_processes();
  share(0, 0);
  gate *shut = hold(NULL);
  unsigned char *block = alloc_on(PART(70), 0, NULL);
  CHECK_OK(plinth_memset(block, 1, MIB, NULL));
  release(block);
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'a');
  sleep_milliseconds(1000);
  CHECK(reserved(0) >= PART(70));
  gate_open(shut);
  expect_to_hear(SOCKET, 'e');
  CHECK(info().given >= PART(15) && reserved(0) <= PART(60));
  expect_sound();
}

TEST(memory_of_running_work_is_given_back_when_it_is_done) {
  name_processes();
  const peer other = start_peer("is_busy", SOCK_STREAM);
  expect_to_hear(other.socket, 'h');
  share(0, 0);
  say(other.socket, 'a');
  unsigned char *block = alloc_on(PART(45), 0, NULL);
  put_pattern(block, MIB, 3);
  CHECK(has_pattern(block, MIB, 3));
  CHECK_EQ(info().asked, 1);
  say(other.socket, 'e');
  expect_end(other);
  release(block);
  expect_nothing_left();
}

HELPER(uses_all_its_memory) {
  name_processes();
  share(0, 0);
  unsigned char *block = alloc_on(PART(60), 0, NULL);
  put_pattern(block, 4 * MIB, 5);
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'c');
  CHECK(has_pattern(block, 4 * MIB, 5));
  say(SOCKET, 'k');
  for (;;) {
    pause();
  }
}

TEST(used_memory_is_kept_until_the_process_dies) {
  name_processes();
  const peer other = start_peer("uses_all_its_memory", SOCK_STREAM);
  expect_to_hear(other.socket, 'h');
  share(0, 0);
  void *block = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_caching_allocator_alloc(PART(50), 0, NULL, &block), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(info().asked, 1);
  say(other.socket, 'c');
  expect_to_hear(other.socket, 'k');
  CHECK(kill(other.process, SIGKILL) == 0);
  expect_killed(other);
  EVENTUALLY(info().processes == 1);
  EVENTUALLY(plinth_caching_allocator_alloc(PART(90), 0, NULL, &block) == PLINTH_OK);
  release(block);
  expect_nothing_left();
}

HELPER(is_stopped) {
  name_processes();
  share(0, 0);
  release(alloc_on(PART(70), 0, NULL));
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'e');
}

/* A process that does not answer costs a limited time. */
TEST(a_stopped_process_does_not_hang_the_others) {
  name_processes();
  const peer other = start_peer("is_stopped", SOCK_STREAM);
  expect_to_hear(other.socket, 'h');
  share(0, 0);
  CHECK(kill(other.process, SIGSTOP) == 0);
  void *block = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_caching_allocator_alloc(PART(60), 0, NULL, &block), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK(kill(other.process, SIGCONT) == 0);
  EVENTUALLY(plinth_caching_allocator_alloc(PART(60), 0, NULL, &block) == PLINTH_OK);
  release(block);
  say(other.socket, 'e');
  expect_end(other);
  expect_nothing_left();
}

/* A process that has the lock with which processes join. */
static pid_t start_stopped_process(void) {
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  char path[256];
  int ends[2];
  char told = 0;
  CHECK_OK(plinth_get_device_properties(0, &properties));
  int length = snprintf(path, sizeof path, "/dev/shm/plinth-share-%u-", (unsigned)geteuid());
  for (int index = 0; index < 16; index++) {
    length += snprintf(path + length, sizeof path - (size_t)length, "%02x", properties.uuid[index]);
  }
  snprintf(path + length, sizeof path - (size_t)length, "-%s", name);
  CHECK(pipe(ends) == 0);
  const pid_t process = fork();
  CHECK(process >= 0);
  if (process == 0) {
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const bool locked = file != -1 && fcntl(file, F_SETLK, &lock) == 0;
    if (!locked || write(ends[1], "l", 1) != 1) {
      _exit(1);
    }
    for (;;) {
      pause();
    }
  }
  CHECK(close(ends[1]) == 0);
  CHECK(read(ends[0], &told, 1) == 1);
  CHECK(close(ends[0]) == 0);
  return process;
}

static void *share_in_thread(void *unused) {
  (void)unused;
  share(0, 0);
  return NULL;
}

TEST(allocations_do_not_wait_for_a_process_that_stopped_while_it_joined) {
  name_processes();
  pthread_t thread;
  int status = -1;
  share(0, 0);
  CHECK_OK(plinth_memory_share_disable(0));
  const pid_t stopped = start_stopped_process();
  CHECK(pthread_create(&thread, NULL, share_in_thread, NULL) == 0);
  usleep(300 * 1000);
  const double begin = seconds_now();
  release(alloc_on(PART(20), 0, NULL));
  CHECK_EQ(info().processes, 0);
  CHECK(seconds_now() - begin < 5);
  CHECK(kill(stopped, SIGKILL) == 0);
  CHECK(waitpid(stopped, &status, 0) == stopped);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQ(info().processes, 1);
  CHECK_OK(plinth_memory_share_disable(0));
  expect_nothing_left();
}

TEST(the_budget_is_a_limit) {
  name_processes();
  CHECK(!has_thread());
  share(PART(20), PART(10));
  EVENTUALLY(has_thread());
  CHECK(info().budget == PART(20) && info().floor == PART(10));
  void *block = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_caching_allocator_alloc(PART(25), 0, NULL, &block), PLINTH_ERROR_OUT_OF_MEMORY);
  share(PART(40), 0);
  release(alloc_on(PART(25), 0, NULL));
  CHECK_OK(plinth_memory_share_disable(0));
  CHECK_OK(plinth_memory_share_disable(0));
  EVENTUALLY(!has_thread());
  release(alloc_on(PART(60), 0, NULL));
  expect_nothing_left();
}

/* ---- three programs whose peaks do not coincide */

enum { PROGRAMS = 3, TURNS = 4, PIECES = 40 };

/* Holds 8 % of the memory. In its turn it needs 71 % more, in pieces of different sizes, for a time. */
HELPER(takes_turns) {
  char word = 0;
  name_processes();
  share(0, PART(8));
  unsigned char *kept = alloc_on(PART(8), 0, NULL);
  put_pattern(kept, MIB, 1);
  say(SOCKET, 'r');
  while (recv(SOCKET, &word, 1, 0) == 1 && word != 'e') {
    unsigned char *pieces[PIECES];
    size_t left = PART(71), sizes[PIECES];
    uint64_t seed = (uint64_t)word;
    for (int index = 0; index < PIECES; index++) {
      const size_t share_of_rest = left / (size_t)(PIECES - index);
      sizes[index] = index == PIECES - 1 ? left : share_of_rest / 2 + random_next(&seed) % (share_of_rest + 1);
      left -= sizes[index];
      pieces[index] = alloc_on(sizes[index], 0, NULL);
      put_pattern(pieces[index], 4096, (unsigned)index);
    }
    for (int index = 0; index < PIECES; index++) {
      CHECK(has_pattern(pieces[index], 4096, (unsigned)index));
      release(pieces[index]);
    }
    say(SOCKET, 'd');
  }
  CHECK(has_pattern(kept, MIB, 1));
  release(kept);
  expect_sound();
}

/* At most 3 * 8 + 71 = 95 % of the memory are live. Without the others' memory each turn after the first would fail. */
TEST(peaks_of_several_programs_take_turns) {
  peer programs[PROGRAMS];
  name_processes();
  for (int program = 0; program < PROGRAMS; program++) {
    programs[program] = start_peer("takes_turns", SOCK_STREAM);
    expect_to_hear(programs[program].socket, 'r');
  }
  for (int turn = 0; turn < TURNS * PROGRAMS; turn++) {
    const peer program = programs[turn % PROGRAMS];
    say(program.socket, (char)('A' + turn));
    expect_to_hear(program.socket, 'd');
  }
  for (int program = 0; program < PROGRAMS; program++) {
    say(programs[program].socket, 'e');
    expect_end(programs[program]);
  }
}

static void child_of_fork(void) {
  plinth_memory_share_info_t found = PLINTH_MEMORY_SHARE_INFO_INIT;
  CHECK_STATUS(plinth_memory_share_info(0, &found), PLINTH_ERROR_FORKED_CHILD);
  CHECK_STATUS(plinth_memory_share_disable(0), PLINTH_ERROR_FORKED_CHILD);
}

TEST(a_forked_child_has_no_share) {
  name_processes();
  share(0, 0);
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    child_of_fork();
    exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_EQ(info().processes, 1);
  expect_nothing_left();
}

TEST(wrong_arguments_are_refused) {
  name_processes();
  plinth_memory_share_options_t options = PLINTH_MEMORY_SHARE_OPTIONS_INIT;
  plinth_memory_share_info_t found = PLINTH_MEMORY_SHARE_INFO_INIT;
  CHECK_STATUS(plinth_memory_share_info(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_share_info(99, &found), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_memory_share_enable(99, NULL), PLINTH_ERROR_INVALID_DEVICE);
  options.budget = MIB;
  options.floor = 2 * MIB;
  CHECK_STATUS(plinth_memory_share_enable(0, &options), PLINTH_ERROR_INVALID_VALUE);
  options.floor = 0;
  options.budget = 0;
  options.name = "../x";
  CHECK_STATUS(plinth_memory_share_enable(0, &options), PLINTH_ERROR_INVALID_VALUE);
  options.name = name;
  CHECK_OK(plinth_memory_share_enable(0, &options));
  options.name = "another";
  CHECK_STATUS(plinth_memory_share_enable(0, &options), PLINTH_ERROR_ALREADY_INITIALIZED);
  CHECK_OK(plinth_memory_share_disable(0));
  CHECK_EQ(info().processes, 0);
}
