// Runs processes that use all of the library at once, and strikes them at random: `chaos [--seconds N] [--seed N]`.
//
// Threads of several processes allocate, free, record streams, capture, replay, release and restore the memory of graphs,
// put pools to sleep with each kind of backup and wake them, register memory, share memory, change settings, use pools, form
// and split groups, reduce, and load kernels. With an odd seed the processes share the devices by budgets. Meanwhile driver
// calls fail, signals arrive, processes fork, threads end or are cancelled, limits of descriptors, file sizes and address
// space shrink, disks are full, hostile messages come in, and processes are paused and killed. Every block has contents of
// its own, which are checked; every sum is checked; the allocator's own check runs. A process that ends by itself must hold
// nothing: no memory, descriptor, handle or graph; and the run leaves no process, file, socket or shared memory.
//
// A failure prints the seed, the number of the life (the process) that failed, the last operations of its threads, and the
// command that runs that life again. What a thread does follows from the seed, the life and the thread's number; how
// threads and processes interleave does not. With `--processes 1 --threads 1` a run is nearly the same each time.
//
// Other options: `--processes N`, `--threads N`, `--kill-every SECONDS` (0 for never), `--life N`, `--verbose`, and
// `--without faults,limits,signals,cancellations,forks,messages`. The device is the host device, or that of PLINTH_DEVICE.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "chaos/life.h"

#include <sys/wait.h>

namespace {

constexpr int64_t SECOND = 1000000000, HANG = 120 * SECOND;

struct Child {
  pid_t process = 0;
  int64_t continues = 0;  // when a paused process continues; 0 for one that is not paused
  bool killed = false;
};

Child children[MOST_PROCESSES];
uint64_t next_life;

void start(int slot) {
  fflush(nullptr);
  const uint64_t number = next_life++;
  ProcessRecord &process = shared->processes[slot];
  memset(static_cast<void *>(&process), 0, sizeof process);
  process.life = number;
  children[slot] = Child{};
  const pid_t child = fork();
  if (child == 0) {
    live(slot, number);
  }
  if (child == -1) {
    perror("fork");
    exit(2);
  }
  children[slot].process = child;
}

void print_history(int slot) {
  std::vector<Step> steps;
  const ProcessRecord &process = shared->processes[slot];
  for (const ThreadRecord &thread : process.threads) {
    for (const Step &one : thread.history) {
      if (one.order != 0) {
        steps.push_back(one);
      }
    }
  }
  std::sort(steps.begin(), steps.end(), [](const Step &one, const Step &other) { return one.order < other.order; });
  const size_t first = steps.size() > 1000 ? steps.size() - 1000 : 0;
  for (size_t index = first; index < steps.size(); index++) {
    const Step &one = steps[index];
    fprintf(stderr, "  %10lu thread %-4lu %-20s %#lx %#lx%s%s\n", static_cast<unsigned long>(one.order),
            static_cast<unsigned long>(one.thread), OPERATION_NAMES[one.operation], static_cast<unsigned long>(one.first),
            static_cast<unsigned long>(one.second), one.status == 0 ? "" : " -> ",
            one.status == 0 ? "" : plinth_status_name(one.status));
  }
}

// The operation that each thread of each process is in, and how long it takes: another process may be the cause.
void print_operations() {
  for (int slot = 0; slot < options.processes; slot++) {
    for (const ThreadRecord &thread : shared->processes[slot].threads) {
      const int64_t since = thread.busy_since;
      if (children[slot].process != 0 && since != 0) {
        const Step &last = thread.history[(thread.steps - 1) % HISTORY];
        fprintf(stderr, "  process %d, thread %lu: %s for %.1f s\n", slot, static_cast<unsigned long>(last.thread),
                OPERATION_NAMES[last.operation], static_cast<double>(now() - since) / SECOND);
      }
    }
  }
}

[[noreturn]] void report_failure(int slot, const char *what) {
  const uint64_t number = shared->processes[slot].life;
  fprintf(stderr, "what the processes are doing:\n");
  print_operations();
  fprintf(stderr, "the last operations of the process that failed:\n");
  print_history(slot);
  // After the history, which is long: often only the end of an output is kept.
  fprintf(stderr, "chaos: process %d, life %lu: %s\n", slot, static_cast<unsigned long>(number), what);
  fprintf(stderr, "again: chaos --seed %lu --life %lu --processes %d --threads %d --kill-every %g --seconds %g\n",
          static_cast<unsigned long>(options.seed), static_cast<unsigned long>(number), options.processes, options.threads,
          options.kill_every, options.seconds);
  fflush(stderr);
  for (const Child &child : children) {
    if (child.process != 0) {
      kill(child.process, SIGKILL);
    }
  }
  exit(1);
}

void check_failure() {
  if (shared->failed == 0) {
    return;
  }
  while (shared->failed != 2) {
    sleep_microseconds(1000);
  }
  report_failure(shared->failed_process, shared->failure);
}

// Starts a new life where one has ended. Returns how many processes there are.
int replace_ended(bool restart) {
  int count_of_processes = 0;
  for (int slot = 0; slot < options.processes; slot++) {
    int status = 0;
    Child &child = children[slot];
    if (child.process != 0 && waitpid(child.process, &status, WNOHANG) == child.process) {
      check_failure();
      if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !child.killed) {
        char text[128];
        snprintf(text, sizeof text, "it ended with %s %d", WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        report_failure(slot, text);
      }
      child.process = 0;
      if (restart) {
        start(slot);
      }
    }
    count_of_processes += child.process != 0;
  }
  return count_of_processes;
}

// An operation that takes so long has no limit of its own.
void check_hangs() {
  for (int slot = 0; slot < options.processes; slot++) {
    for (const ThreadRecord &thread : shared->processes[slot].threads) {
      const int64_t since = thread.busy_since;
      if (children[slot].process != 0 && since != 0 && now() - since > HANG) {
        const Step &last = thread.history[(thread.steps - 1) % HISTORY];
        char text[160];
        snprintf(text, sizeof text, "thread %lu has been in %s for two minutes", static_cast<unsigned long>(last.thread),
                 OPERATION_NAMES[last.operation]);
        if (options.verbose) {
          fprintf(stderr, "chaos: %s; process %d waits for a debugger\n", text, children[slot].process);
          sleep_microseconds(INT64_C(600000000));
        }
        report_failure(slot, text);
      }
    }
  }
}

void wait_for_all() {
  while (replace_ended(false) > 0) {
    sleep_microseconds(1000);
    check_failure();
    check_hangs();
  }
}

void strike_process(Random &random) {
  const int slot = static_cast<int>(random.below(static_cast<uint64_t>(options.processes)));
  Child &child = children[slot];
  if (child.process == 0 || child.killed || child.continues != 0) {
    return;
  }
  if (random.one_in(4)) {
    kill(child.process, SIGSTOP);
    child.continues = now() + static_cast<int64_t>(random.below(SECOND / 5));
    count(EV_pauses);
  } else {
    child.killed = true;
    kill(child.process, SIGKILL);
    count(EV_kills);
  }
}

void continue_paused(bool all) {
  for (Child &child : children) {
    if (child.continues != 0 && (all || now() > child.continues)) {
      child.continues = 0;
      kill(child.process, SIGCONT);
    }
  }
}

// The names in a folder, sorted.
std::vector<std::string> names_in(const char *folder) {
  std::vector<std::string> names;
  if (DIR *opened = opendir(folder)) {
    while (const dirent *entry = readdir(opened)) {
      names.emplace_back(entry->d_name);
    }
    closedir(opened);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void check_leftovers() {
  for (const std::string &name : names_in(options.folder.c_str())) {
    // A killed process leaves what is the program's own: its socket, a snapshot that it was writing, the folder of a group.
    if (name.rfind("group-", 0) == 0) {
      remove_folder(options.folder + "/" + name);
      continue;
    }
    const bool own = name == "." || name == ".." || name.find("snapshot-") <= 1 || name.size() <= 2;
    if (!own) {
      fprintf(stderr, "chaos: the run left %s/%s\n", options.folder.c_str(), name.c_str());
      exit(1);
    }
  }
  for (const std::string &name : names_in("/dev/shm")) {
    // Each file of a run has its name. Other runs and programs have files of their own.
    if (name.find(name_of_run()) != std::string::npos) {
      fprintf(stderr, "chaos: the run left /dev/shm/%s\n", name.c_str());
      exit(1);
    }
  }
  if (FILE *sockets = fopen("/proc/net/unix", "r")) {
    char line[512];
    while (fgets(line, sizeof line, sockets) != nullptr) {
      if (strstr(line, options.folder.c_str()) != nullptr) {
        fprintf(stderr, "chaos: the run left a socket: %s", line);
        exit(1);
      }
    }
    fclose(sockets);
  }
  remove_folder(options.folder);
}

void print_counts() {
  uint64_t operations = 0;
  for (const auto &one : shared->operations) {
    operations += one;
  }
  printf("%-52s %12lu\n", "operations", static_cast<unsigned long>(operations));
  for (int operation = 0; operation < OPERATION_COUNT; operation++) {
    printf("    %-48s %12lu\n", OPERATION_NAMES[operation], static_cast<unsigned long>(shared->operations[operation]));
  }
  for (int event = 0; event < EVENT_COUNT; event++) {
    printf("%-52s %12lu\n", EVENT_TEXTS[event], static_cast<unsigned long>(shared->events[event]));
  }
}

void parse(int argc, char **argv) {
  options.seed = static_cast<uint64_t>(now()) % 1000000;
  for (int index = 1; index < argc; index++) {
    const std::string name = argv[index];
    if (name == "--verbose") {
      options.verbose = true;
      continue;
    }
    const char *value = index + 1 < argc ? argv[++index] : "";
    if (name == "--seconds") {
      options.seconds = atof(value);
    } else if (name == "--seed") {
      options.seed = strtoull(value, nullptr, 10);
    } else if (name == "--life") {
      options.life = strtoull(value, nullptr, 10);
    } else if (name == "--without") {
      options.without = value;
    } else if (name == "--kill-every") {
      options.kill_every = atof(value);
    } else if (name == "--processes" && atoi(value) >= 1 && atoi(value) <= MOST_PROCESSES) {
      options.processes = atoi(value);
    } else if (name == "--threads" && atoi(value) >= 1 && atoi(value) <= MOST_THREADS - 3) {
      options.threads = atoi(value);
    } else {
      fprintf(stderr, "usage: chaos [--seconds N] [--seed N] [--life N] [--processes 1-%d] [--threads 1-%d]\n"
              "             [--kill-every SECONDS] [--without STRIKES] [--verbose]\n", MOST_PROCESSES, MOST_THREADS - 3);
      exit(2);
    }
  }
}

}  // namespace

int main(int argc, char **argv) {
  parse(argc, argv);
  char folder[] = "/tmp/chaos-XXXXXX";
  if (mkdtemp(folder) == nullptr) {
    perror("mkdtemp");
    return 2;
  }
  options.folder = folder;
  void *mapped = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    perror("mmap");
    return 2;
  }
  shared = new (mapped) Shared();
  next_life = options.life;
  Random random = random_of(options.seed, 0);
  const int64_t begun = now();
  for (int slot = 0; slot < options.processes; slot++) {
    start(slot);
  }
  int64_t next_strike = begun, next_report = begun + 10 * SECOND;
  const int64_t last = begun + static_cast<int64_t>(options.seconds * SECOND);
  while (now() < last) {
    sleep_microseconds(1000);
    check_failure();
    replace_ended(true);
    continue_paused(false);
    check_hangs();
    if (options.kill_every > 0 && now() > next_strike) {
      strike_process(random);
      next_strike = now() + static_cast<int64_t>((0.5 + static_cast<double>(random.below(1000)) / 1000) *
                                                 options.kill_every * SECOND);
    }
    if (options.verbose && now() > next_report) {
      fprintf(stderr, "chaos: life %lu\n", static_cast<unsigned long>(next_life));
      next_report += 10 * SECOND;
    }
  }
  shared->ending = 1;
  continue_paused(true);
  wait_for_all();
  // A process that was killed leaves its shared memory if it was the last one; the next one that ends removes that.
  start(0);
  wait_for_all();
  print_counts();
  check_leftovers();
  printf("chaos: seed %lu, %.0f s, %d processes of %d threads: nothing was lost, nothing hung\n",
         static_cast<unsigned long>(options.seed), static_cast<double>(now() - begun) / SECOND, options.processes,
         options.threads);
  return 0;
}
