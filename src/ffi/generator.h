#if !defined(PLINTH_PHILOX_STATE_T)
/*! plinth_philox_state_t is declared: here, or by plinth_philox.h. */
#define PLINTH_PHILOX_STATE_T
/*! Where a kernel takes its random numbers: a seed and an offset, or, in a capture, where each replay finds them.
 *  plinth_philox.cuh has what a kernel does with it. */
typedef struct plinth_philox_state_t {
  /*! The seed; in a capture the address of one in the device's memory. */
  uint64_t seed;
  /*! How many 32-bit numbers each subsequence has given; in a capture the address of such a count. */
  uint64_t offset;
  /*! In a capture, what is added to the offset there. */
  uint64_t graph_offset;
  /*! 1 in a capture, else 0. */
  uint32_t captured;
  /*! 0. */
  uint32_t reserved;
} plinth_philox_state_t;
#endif
