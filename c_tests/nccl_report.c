/* NCCL's own report of a job. A thread of the test answers in NCCL's place. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* library: fake_nccl */
/* alone: an_old_version_makes_no_reports the_report_of_nccl_itself; sets the environment */
/* alone: the_watchdog_logs_the_report; reads the whole log */
#include "logging.h"
#include "ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { QUESTION_BYTES = 200, LIMIT = 500 };

#define ACCEPTED "SERVER PROTOCOL 2\nOK\n"
#define REPORT "\nJob summary\n===========\n  1 node, 2 processes\n\n"

/* A thread that answers one question. */
typedef struct server {
  int socket;
  const char *answer; /* NULL: it answers nothing until `done` */
  size_t repeats;
  bool ignores_first; /* the first connection, as a process that is stopped does */
  char question[QUESTION_BYTES];
  atomic_bool done;
  pthread_t thread;
} server;

static void *serve(void *context) {
  server *self = (server *)context;
  size_t length = 0;
  const int ignored = self->ignores_first ? accept(self->socket, NULL, NULL) : -1;
  const int client = accept(self->socket, NULL, NULL);
  if (ignored >= 0) close(ignored);
  if (client < 0) return NULL;
  while (length < QUESTION_BYTES - 1 && strstr(self->question, "STATUS\n") == NULL) {
    const ssize_t got = recv(client, self->question + length, QUESTION_BYTES - 1 - length, 0);
    if (got <= 0) break;
    length += (size_t)got;
  }
  while (self->answer == NULL && !atomic_load(&self->done)) {
    sleep_milliseconds(1);
  }
  for (size_t time = 0; self->answer != NULL && time < self->repeats; time++) {
    if (send(client, self->answer, strlen(self->answer), MSG_NOSIGNAL) < 0) break;
  }
  close(client);
  return NULL;
}

/* Uses NCCL in a version that makes reports. */
static void need_reports(void) {
  int32_t minor = 0;
  need_nccl();
  CHECK_OK(plinth_nccl_version(NULL, &minor, NULL));
  if (minor < 24) SKIP("needs NCCL 2.24");
}

/* Listens at a free port, and returns it. */
static int listen_somewhere(int *port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(made >= 0);
  CHECK_EQ(bind(made, (struct sockaddr *)&address, length), 0);
  CHECK_EQ(listen(made, 1), 0);
  CHECK_EQ(getsockname(made, (struct sockaddr *)&address, &length), 0);
  *port = ntohs(address.sin_port);
  return made;
}

static void set_address(int port) {
  char text[40];
  snprintf(text, sizeof text, "127.0.0.1:%d", port);
  harness_setenv("NCCL_RAS_ADDR", text);
}

static void start_server_that(server *self, bool ignores_first, const char *answer, size_t repeats) {
  int port = 0;
  memset(self, 0, sizeof *self);
  self->ignores_first = ignores_first;
  self->socket = listen_somewhere(&port);
  self->answer = answer;
  self->repeats = repeats;
  set_address(port);
  CHECK_EQ(pthread_create(&self->thread, NULL, serve, self), 0);
}

static void start_server(server *self, const char *answer, size_t repeats) {
  start_server_that(self, false, answer, repeats);
}

static void stop_server(server *self) {
  atomic_store(&self->done, true);
  shutdown(self->socket, SHUT_RDWR); /* ends an accept for which nobody came */
  CHECK_EQ(pthread_join(self->thread, NULL), 0);
  close(self->socket);
}

/* Asks a server with an answer, and returns the status. */
static plinth_status_t ask(const char *answer, size_t repeats, uint64_t milliseconds, char **text) {
  server asked;
  start_server(&asked, answer, repeats);
  const plinth_status_t status = plinth_nccl_report(milliseconds, text);
  stop_server(&asked);
  return status;
}

TEST(the_report_is_what_nccl_answers) {
  server asked;
  char *text = NULL;
  need_reports();
  start_server(&asked, ACCEPTED REPORT, 1);
  CHECK_OK(plinth_nccl_report(0, &text));
  stop_server(&asked);
  CHECK_TEXT(text, "Job summary\n===========\n  1 node, 2 processes");
  CHECK_TEXT(asked.question, "CLIENT PROTOCOL 2\nTIMEOUT 8\nVERBOSE STATUS\n");
  plinth_string_free(text);
  CHECK_OK(ask(ACCEPTED, 1, 2000, &text));
  CHECK_TEXT(text, "");
  plinth_string_free(text);
}

TEST(who_is_not_nccl_is_not_believed) {
  const char *const answers[] = {"no\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "SERVER PROTOCOL 2\nERROR: no such command\n"};
  need_reports();
  for (int index = 0; index < 3; index++) {
    char *text = NULL;
    CHECK_STATUS(ask(answers[index], 1, 0, &text), PLINTH_ERROR_NCCL);
    CHECK_MESSAGE("is not NCCL: it answers");
    CHECK(text == NULL);
  }
}

TEST(a_report_that_does_not_come_times_out) {
  char *text = NULL;
  need_reports();
  const double start = seconds_now();
  CHECK_STATUS(ask(NULL, 0, LIMIT, &text), PLINTH_ERROR_TIMED_OUT);
  const double seconds = seconds_now() - start;
  CHECK_MESSAGE("asking NCCL for its report at 127.0.0.1:");
  CHECK_MESSAGE("for 0.500 s, which is the limit");
  CHECK(seconds >= LIMIT / 1000.0 && seconds < 15);
}

TEST(a_process_that_does_not_begin_to_answer_is_asked_again) {
  server asked;
  char *text = NULL;
  need_reports();
  start_server_that(&asked, true, ACCEPTED REPORT, 1);
  CHECK_OK(plinth_nccl_report(0, &text));
  stop_server(&asked);
  CHECK_TEXT(text, "Job summary\n===========\n  1 node, 2 processes");
  plinth_string_free(text);
}

TEST(a_connection_that_closes_at_once_is_an_error) {
  char *text = NULL;
  need_reports();
  CHECK_STATUS(ask("", 1, 0, &text), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("the connection is closed without an answer");
}

TEST(a_report_that_does_not_end_is_an_error) {
  static char line[100001];
  char *text = NULL;
  need_reports();
  memset(line, 'x', sizeof line - 1);
  CHECK_STATUS(ask(line, 1000, 0, &text), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("the report does not end");
}

TEST(an_address_without_nccl_is_an_error) {
  char *text = NULL;
  int port = 0;
  need_reports();
  close(listen_somewhere(&port));
  set_address(port);
  CHECK_STATUS(plinth_nccl_report(0, &text), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("no communicator of NCCL is in use on this machine, or NCCL_RAS_ENABLE=0");
  harness_setenv("NCCL_RAS_ADDR", "nowhere");
  CHECK_STATUS(plinth_nccl_report(0, &text), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("asking NCCL for its report at nowhere");
  CHECK_STATUS(plinth_nccl_report(0, NULL), PLINTH_ERROR_NULL_POINTER);
}

TEST(an_old_version_makes_no_reports) {
  char *text = NULL;
  if (!on_host_device()) SKIP("the version of the fake can be chosen");
  need_nccl();
  harness_setenv("FAKE_NCCL_VERSION", "22304");
  CHECK_STATUS(plinth_nccl_report(0, &text), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_MESSAGE("NCCL 2.23.4 makes no reports");
}

/* Makes two ranks of the process, and calls them once. */
static void make_ranks(uint64_t milliseconds, plinth_communicator_t *communicators, float **memory) {
  init_ranks(2, options_of(PLINTH_ENGINE_NCCL, 20000, 0), communicators);
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < 2; rank++) {
    memory[rank] = floats_on(rank, 100, 0, 0);
    CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], 100, FLOAT32,
                                            PLINTH_REDUCE_SUM, NULL));
  }
  CHECK_OK(plinth_communicator_group_end());
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_synchronize(rank));
    CHECK_OK(plinth_communicator_set_timeout(communicators[rank], milliseconds));
  }
}

TEST(the_watchdog_logs_the_report) {
  plinth_communicator_t communicators[2];
  float *memory[2];
  server asked;
  need_reports();
  start_server(&asked, ACCEPTED REPORT, 1);
  make_ranks(2000, communicators, memory);
  log_collect(PLINTH_LOG_WARNING);
  CHECK_OK(plinth_communicator_all_reduce(communicators[0], memory[0], memory[0], 100, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_OK(plinth_synchronize(0));
  stop_server(&asked);
  EVENTUALLY(logged.count >= 2);
  CHECK_LOGGED(PLINTH_LOG_WARNING, "NCCL's report before the abort:\nJob summary\n");
  CHECK_LOGGED(PLINTH_LOG_ERROR, "the communicator is aborted: rank 0 of 2");
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}

TEST(the_report_of_nccl_itself) {
  plinth_communicator_t communicators[2];
  float *memory[2];
  int port = 0;
  char *text = NULL;
  if (on_host_device()) SKIP("needs NVIDIA's NCCL");
  need_reports();
  close(listen_somewhere(&port));
  set_address(port);
  make_ranks(20000, communicators, memory);
  CHECK_OK(plinth_nccl_report(0, &text));
  CHECK(strstr(text, "Job summary") != NULL);
  CHECK(strstr(text, "RUNNING") != NULL);
  plinth_string_free(text);
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}
