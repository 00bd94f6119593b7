// The macro assert, which ends the kernel with an error. As in C, it follows NDEBUG each time that this is included.
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) \
  ((condition) ? (void)0 : plinth_host::trap("assertion failed: " #condition, plinth_host::Site::here(), plinth_host::kAssert))
#endif
