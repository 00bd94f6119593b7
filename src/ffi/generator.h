#if !defined(PLINTH_PHILOX_STATE_T)
/*! Defined when plinth_philox_state_t is declared, here or by plinth_philox.h. */
#define PLINTH_PHILOX_STATE_T
/*! The random state for a kernel: a seed and an offset, or, in a capture, the addresses from which each replay reads
 *  them. plinth_philox.cuh has the functions that use it in kernels. */
typedef struct plinth_philox_state_t {
  /*! The seed; in a capture its address in device memory. */
  uint64_t seed;
  /*! The number of 32-bit numbers that each subsequence has drawn; in a capture the address of that number. */
  uint64_t offset;
  /*! In a capture, a number to add to the offset. */
  uint64_t graph_offset;
  /*! 1 in a capture, else 0. */
  uint32_t captured;
  /*! Reserved: 0. */
  uint32_t reserved;
} plinth_philox_state_t;
#endif
