/*! An initializer for a plinth_cufft_params_t. */
#define PLINTH_CUFFT_PARAMS_INIT {sizeof(plinth_cufft_params_t), 0, 0, {0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}
