//! Basics
//!
//! Every other header includes this one. It holds the macros that functions are declared with, the type of a stream,
//! the statuses that functions return, and the version.
//!
//! A status and the message behind plinth_last_error() belong to the thread that made the call: two threads do not see
//! each other's errors. The rules that hold for every function of plinth are in plinth.h.

#if defined(_WIN32)
#define PLINTH_API __declspec(dllimport)
#elif defined(__GNUC__)
#define PLINTH_API __attribute__((visibility("default")))
#else
#define PLINTH_API
#endif

#if defined(__cplusplus)
#define PLINTH_NOEXCEPT noexcept
#else
#define PLINTH_NOEXCEPT
#endif

/*!
 * A stream: the same type as cudaStream_t and CUstream, so that it can be passed to kernel<<<...>>>.
 *
 * Every call that takes a stream also takes three names. They refer to the device that the call is about: that of the
 * tensor, of the memory, of the event, of the communicator, or of the device argument; the current device if the call
 * names none. docs/stream.md lists the device of each call.
 *
 * - NULL: the default stream of that device. CUDA's own names 1 (cudaStreamLegacy) and 2 (cudaStreamPerThread) refer to
 *   the same device.
 * - PLINTH_STREAM_CURRENT: the calling thread's current stream on that device.
 * - PLINTH_STREAM_DEFAULT_OF(device): the default stream of the device with this number.
 */
typedef struct CUstream_st *plinth_stream_t;

/*!
 * The calling thread's current stream on the device that the call is about, which is what torch uses if no stream is
 * passed. Only plinth's calls accept it, and none returns it.
 */
#define PLINTH_STREAM_CURRENT ((plinth_stream_t)(uintptr_t)0x504C530100000000u)

/*!
 * The default stream of a device. NULL is the default stream of every device, and does not name it. Only plinth's calls
 * accept this name, and none returns it. A call refuses the number of a device that does not exist with
 * PLINTH_ERROR_INVALID_DEVICE. -1 is the current device.
 */
#define PLINTH_STREAM_DEFAULT_OF(device) ((plinth_stream_t)(uintptr_t)(0x504C530000000000u | (uint32_t)(device)))
