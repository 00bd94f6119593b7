/*! An initializer for a plinth_sanitizer_access_t. */
#define PLINTH_SANITIZER_ACCESS_INIT {sizeof(plinth_sanitizer_access_t), NULL, 0, 0, 0}

/*! An initializer for a plinth_sanitizer_side_t. */
#define PLINTH_SANITIZER_SIDE_INIT {sizeof(plinth_sanitizer_side_t), NULL, 0, 0, 0, NULL, 0, 0}

/*! An initializer for a plinth_sanitizer_report_t. */
#define PLINTH_SANITIZER_REPORT_INIT {sizeof(plinth_sanitizer_report_t), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL}
