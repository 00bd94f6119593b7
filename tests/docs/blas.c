// compiled only: needs cuBLAS
#include "page.h"

/* What cublas_v2.h declares. */
typedef struct cublasContext *cublasHandle_t;
enum { CUBLAS_OP_N };
static int cublasSgemm(cublasHandle_t handle, int op_a, int op_b, int m, int n, int k, const float *alpha, const float *a,
                       int lda, const float *b, int ldb, const float *beta, float *c, int ldc) {
  return 0;
}

int multiply(int m, int n, int k, const float *a, const float *b, float *c) {
  const float one = 1, zero = 0;
#include "blas.1.inc"
  return 0;
}

int main(void) {}
