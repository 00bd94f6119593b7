// Groups of the processes of a run: they meet through a folder, reduce, split, and part, while members are killed.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "memory.h"

#include <dirent.h>

constexpr size_t NUMBERS = 1024;

// How long ranks wait for each other, in milliseconds. A GPU's driver loads kernels when they are first used.
inline uint64_t group_limit;

// How a member may find that another was killed, left, was late, or was struck by a fault.
#define LOST \
  {PLINTH_ERROR_PEER_LOST, PLINTH_ERROR_TIMED_OUT,     PLINTH_ERROR_ABORTED, PLINTH_ERROR_SYSTEM, \
   PLINTH_ERROR_OUT_OF_MEMORY, PLINTH_ERROR_DRIVER, PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED}
// Members may also part in different ways.
#define LOST_OR_APART \
  {PLINTH_ERROR_PEER_LOST, PLINTH_ERROR_TIMED_OUT, PLINTH_ERROR_ABORTED, PLINTH_ERROR_SYSTEM, \
   PLINTH_ERROR_OUT_OF_MEMORY, PLINTH_ERROR_DRIVER, PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED, PLINTH_ERROR_RANK_MISMATCH}
// A member that was killed in a session cannot join it again: its rank is used in the folder.
#define LOST_OR_USED \
  {PLINTH_ERROR_PEER_LOST, PLINTH_ERROR_TIMED_OUT, PLINTH_ERROR_ABORTED, PLINTH_ERROR_SYSTEM, \
   PLINTH_ERROR_OUT_OF_MEMORY, PLINTH_ERROR_DRIVER, PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED, PLINTH_ERROR_INVALID_VALUE}

inline std::string folder_of_session(uint64_t session) {
  return options.folder + "/group-" + std::to_string(session);
}

inline void remove_folder(const std::string &folder) {
  DIR *entries = opendir(folder.c_str());
  if (entries == nullptr) {
    return;
  }
  while (const dirent *entry = readdir(entries)) {
    unlink((folder + "/" + entry->d_name).c_str());
  }
  closedir(entries);
  rmdir(folder.c_str());
}

// What the numbers of a rank are, and what their sum over ranks is.
inline int32_t number_of(uint64_t session, uint64_t round, int rank, size_t index) {
  return static_cast<int32_t>((session * 31 + round * 7 + static_cast<uint64_t>(rank) * 1009 + index) % 100003);
}

// Adds the numbers of all ranks, and checks the sums. `ranks` lists the ranks of the whole group that take part.
inline bool add_numbers(plinth_communicator_t group, const std::vector<int> &ranks, uint64_t session, uint64_t round,
                        int32_t *memory, int32_t *pinned) {
  static const DLDataType INT32 = {0, 32, 1};
  Random random = random_of(session, round);
  const size_t count_of_numbers = 1 + random.below(NUMBERS);
  begin(OP_collective, session, round);
  for (size_t index = 0; index < count_of_numbers; index++) {
    pinned[index] = number_of(session, round, life.slot, index);
  }
  plinth_stream_t stream = streams[life.slot % device_count][1];
  if (!TRY(plinth_memcpy(memory, pinned, 4 * count_of_numbers, stream)) ||
      !TRY(plinth_communicator_all_reduce(group, memory, memory, count_of_numbers, INT32, PLINTH_REDUCE_SUM, stream), LOST) ||
      !TRY(plinth_memcpy(pinned, memory, 4 * count_of_numbers, stream)) ||
      !TRY(plinth_communicator_wait(group, group_limit, stream), LOST)) {
    return false;
  }
  for (size_t index = 0; index < count_of_numbers; index++) {
    int32_t sum = 0;
    for (int rank : ranks) {
      sum += number_of(session, round, rank, index);
    }
    if (pinned[index] != sum) {
      fail("session %lu, round %lu: sum %zu of %zu is %d instead of %d", static_cast<unsigned long>(session),
           static_cast<unsigned long>(round), index, count_of_numbers, pinned[index], sum);
    }
  }
  count(EV_checked_collectives);
  return true;
}

// Joins the group of a session, works in it, and leaves.
inline void join_group(uint64_t session, int32_t *memory, int32_t *pinned) {
  const int ranks = options.processes;
  Random random = random_of(session, 0);
  plinth_store_t store = nullptr;
  plinth_communicator_t group = nullptr, part = nullptr;
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  // Not made in TRY: handlers make calls there, which must not interrupt the C library's allocator.
  const std::string folder = folder_of_session(session);
  begin(OP_join_group, session);
  if (!TRY(plinth_store_create(folder.c_str(), &store), LOST)) {
    return;
  }
  plinth_communicator_options_t made = PLINTH_COMMUNICATOR_OPTIONS_INIT;
  made.engine = PLINTH_ENGINE_SHARED;
  made.timeout_milliseconds = group_limit;
  if (TRY(plinth_store_unique_id(store, "id", life.slot, ranks, group_limit, id), LOST_OR_USED) &&
      TRY(plinth_communicator_init_rank(ranks, id, life.slot, life.slot % device_count, &made, &group), LOST)) {
    std::vector<int> all, half;
    std::vector<int32_t> others;
    for (int rank = 0; rank < ranks; rank++) {
      all.push_back(rank);
      (rank % 2 == life.slot % 2 ? half : others).push_back(rank);
    }
    bool whole = true;
    for (uint64_t round = random.below(20); whole && round > 0; round--) {
      whole = add_numbers(group, all, session, round, memory, pinned);
    }
    if (whole && random.one_in(2)) {
      begin(OP_split_group, session);
      if (TRY(plinth_communicator_split(group, life.slot % 2, life.slot, &part), LOST_OR_APART)) {
        add_numbers(part, half, session, 1000 + static_cast<uint64_t>(life.slot % 2), memory, pinned);
        begin(OP_split_group, session, 1);
        (void)TRY(plinth_communicator_destroy(part), LOST);
      }
    } else if (!others.empty()) {
      // The half goes on, also if another member was lost.
      begin(OP_shrink_group, session);
      if (TRY(plinth_communicator_shrink(group, others.data(), others.size(), PLINTH_SHRINK_ABORT, &part), LOST_OR_APART)) {
        add_numbers(part, half, session, 1002 + static_cast<uint64_t>(life.slot % 2), memory, pinned);
        begin(OP_shrink_group, session, 1);
        (void)TRY(plinth_communicator_destroy(part), LOST);
      }
    }
    begin(OP_join_group, session, 1);
    (void)TRY(plinth_communicator_destroy(group), LOST);
  }
  RETRY(plinth_store_destroy(store));
}

// Joins the present session, and starts the next one if nobody else has.
inline void meet(int32_t *memory, int32_t *pinned) {
  uint64_t session = shared->session.load();
  join_group(session, memory, pinned);
  uint64_t present = session;
  if (shared->session.compare_exchange_strong(present, session + 1) && session >= 2) {
    // Members may still be in the last session, but not in the one before it.
    remove_folder(folder_of_session(session - 2));
  }
  end();
}
