/* Green contexts that divide a device and do not overlap. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "partitioning.h"

enum { BYTES = 3000 };

/* Splits device 0. Skips the test if the driver does not support green contexts. */
static void split(int32_t requested, size_t count, plinth_green_context_t *made, plinth_green_context_t *rest) {
  const plinth_status_t status = plinth_green_context_split(requested, count, 0, made, rest);
  if (status == PLINTH_ERROR_NOT_SUPPORTED) {
    CHECK_MESSAGE("green context");
    SKIP("the driver has no green contexts");
  }
  CHECK_OK(status);
}

TEST(a_split_covers_the_device_without_overlaps) {
  const int32_t all = multiprocessors(0);
  plinth_green_context_t parts[2] = {NULL, NULL}, rest = NULL, again[2] = {NULL, NULL}, other = NULL;
  split(32, 2, parts, &rest);
  CHECK(parts[0] != parts[1] && rest != NULL);
  CHECK(sm_count(parts[0]) >= 32 && sm_count(parts[0]) == sm_count(parts[1]));
  CHECK_EQ(sm_count(parts[0]) + sm_count(parts[1]) + sm_count(rest), all);
  /* Work runs in all of them at the same time. */
  plinth_stream_t streams[] = {stream_of(parts[0]), stream_of(parts[1]), stream_of(rest)};
  unsigned char *memory = device_memory(BYTES, 0);
  for (int index = 0; index < 3; index++) {
    CHECK_OK(plinth_memset(memory + index * 1000, index + 1, 1000, streams[index]));
  }
  for (int index = 0; index < 3; index++) {
    CHECK_OK(plinth_stream_synchronize(streams[index]));
  }
  unsigned char bytes[3000];
  fetch(bytes, memory, sizeof bytes);
  for (int index = 0; index < 3000; index++) {
    CHECK_EQ(bytes[index], index / 1000 + 1);
  }
  /* The parts are used again only together: another split and a single one do not get those of a split in use. */
  CHECK_OK(plinth_green_context_destroy(parts[0]));
  CHECK_STATUS(plinth_green_context_stream(parts[0], &streams[0]), PLINTH_ERROR_INVALID_HANDLE);
  split(32, 2, again, &other);
  plinth_green_context_t single = new_green_context(32, 0);
  void *native[5], *expected = NULL;
  const plinth_green_context_t live[] = {parts[1], rest, again[0], again[1], single};
  for (int index = 0; index < 5; index++) {
    CHECK_OK(plinth_green_context_native(live[index], &native[index], NULL));
    for (int before = 0; before < index; before++) {
      CHECK(native[before] != native[index]);
    }
  }
  expected = native[0];
  const plinth_green_context_t rest_of_them[] = {parts[1], rest, again[0], again[1], other, single};
  for (int index = 0; index < 6; index++) {
    CHECK_OK(plinth_green_context_destroy(rest_of_them[index]));
  }
  /* Now the first split or the second is used again, as a whole. */
  split(32, 2, parts, &rest);
  split(32, 2, again, &other);
  void *first = NULL, *second = NULL;
  CHECK_OK(plinth_green_context_native(parts[1], &first, NULL));
  CHECK_OK(plinth_green_context_native(again[1], &second, NULL));
  CHECK(first == expected || second == expected);
  for (int index = 0; index < 2; index++) {
    CHECK_OK(plinth_green_context_destroy(parts[index]));
    CHECK_OK(plinth_green_context_destroy(again[index]));
  }
  CHECK_OK(plinth_green_context_destroy(rest));
  CHECK_OK(plinth_green_context_destroy(other));
}

TEST(a_split_may_leave_nothing_or_be_without_the_rest) {
  const int32_t all = multiprocessors(0);
  plinth_green_context_t parts[4], rest = (plinth_green_context_t)UNTOUCHED_POINTER;
  split(all, 1, parts, &rest);
  CHECK_EQ(sm_count(parts[0]), all);
  CHECK(rest == NULL);
  CHECK_OK(plinth_green_context_destroy(parts[0]));
  split(8, 4, parts, NULL);
  for (int index = 0; index < 4; index++) {
    CHECK(sm_count(parts[index]) >= 8);
    CHECK_OK(plinth_green_context_destroy(parts[index]));
  }
}

TEST(impossible_splits_are_refused) {
  const int32_t all = multiprocessors(0);
  plinth_green_context_t parts[2] = {NULL, NULL}, rest = NULL;
  CHECK_OK(plinth_green_context_destroy(new_green_context(8, 0)));
  CHECK_STATUS(plinth_green_context_split(0, 1, 0, parts, &rest), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_green_context_split(all + 1, 1, 0, parts, &rest), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_green_context_split(8, 0, 0, parts, &rest), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_green_context_split(8, SIZE_MAX, 0, parts, &rest), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_green_context_split(all / 2 + 1, 2, 0, parts, &rest), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("do not fit");
  CHECK_STATUS(plinth_green_context_split(8, 1, device_count(), parts, &rest), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_green_context_split(8, 1, 0, NULL, &rest), PLINTH_ERROR_NULL_POINTER);
  CHECK(parts[0] == NULL && parts[1] == NULL && rest == NULL);
}
