//! Basics.

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

/*! A stream: the same type as cudaStream_t and CUstream, so that it goes straight into kernel<<<...>>>. */
typedef struct CUstream_st *plinth_stream_t;
