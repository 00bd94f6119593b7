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

/*! A stream: the same type as cudaStream_t and CUstream, so that it can be passed to kernel<<<...>>>. */
typedef struct CUstream_st *plinth_stream_t;
