// Checks CUDA's mathematical functions, integer intrinsics and vector types of the host device. Compile and run:
//   c++ -std=c++17 -O2 -ffp-contract=off -I kernels/host tests/host_kernels/math.cpp -o math && ./math
#include "plinth_host/math.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

#include "cuda_runtime.h"
#include "math_constants.h"

static int failures = 0;
#define CHECK(condition, ...)                                \
  do {                                                       \
    if (!(condition) && ++failures <= 40) {                  \
      printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      printf(__VA_ARGS__);                                   \
      printf("\n");                                          \
    }                                                        \
  } while (0)

template <typename A, typename B> constexpr bool SAME = false;
template <typename A> constexpr bool SAME<A, A> = true;

// Alignments and sizes are those of CUDA.
template <typename T, size_t size, size_t alignment>
constexpr bool LAYOUT = sizeof(T) == size && alignof(T) == alignment;
static_assert(LAYOUT<char2, 2, 2> && LAYOUT<char3, 3, 1> && LAYOUT<uchar4, 4, 4> && LAYOUT<short3, 6, 2>, "");
static_assert(LAYOUT<ushort4, 8, 8> && LAYOUT<int2, 8, 8> && LAYOUT<uint3, 12, 4> && LAYOUT<int4, 16, 16>, "");
static_assert(LAYOUT<float1, 4, 4> && LAYOUT<float2, 8, 8> && LAYOUT<float3, 12, 4> && LAYOUT<float4, 16, 16>, "");
static_assert(LAYOUT<long3, 3 * sizeof(long), alignof(long)> && LAYOUT<longlong2, 16, 16>, "");
static_assert(LAYOUT<double2, 16, 16> && LAYOUT<double3, 24, 8> && LAYOUT<double4, 32, 16>, "");
static_assert(LAYOUT<double4_32a, 32, 32> && LAYOUT<ulonglong4_16a, 32, 16> && LAYOUT<dim3, 12, 4>, "");
static_assert(make_float4(1, 2, 3, 4).w == 4 && dim3(5).z == 1 && dim3(make_uint3(1, 2, 3)).y == 2, "");

// Overloads: a float argument gives a float, and mixtures of integers convert as in CUDA.
static_assert(SAME<decltype(sin(1.0f)), float> && SAME<decltype(::exp(1.0f)), float>, "");
static_assert(SAME<decltype(std::sqrt(1.0f)), float> && SAME<decltype(::pow(1.0f, 2.0f)), float>, "");
static_assert(SAME<decltype(rsqrt(1.0f)), float> && SAME<decltype(::rsqrt(1.0)), double>, "");
static_assert(SAME<decltype(exp10(1.0f)), float> && SAME<decltype(norm3d(1.0f, 1.0f, 1.0f)), float>, "");
static_assert(SAME<decltype(abs(1.0f)), float> && SAME<decltype(j0(1.0f)), float>, "");
static_assert(SAME<decltype(min(1, 2u)), unsigned> && SAME<decltype(max(short(1), short(2))), int>, "");
static_assert(SAME<decltype(min(1ull, 2ll)), unsigned long long> && SAME<decltype(min(1.0f, 2.0)), double>, "");

// Values computed with 400 bits.
struct Reference {
  const char *name;
  double (*function)(double);
  double x, value;
};
static const Reference REFERENCES[] = {
    {"rsqrt", rsqrt, 2.0, 0x1.6a09e667f3bcdp-1},
    {"rsqrt", rsqrt, 3e-310, 0x1.1396bbb7c69e9p+514},
    {"rsqrt", rsqrt, 1.7e+308, 0x1.0740c2d75e7cep-512},
    {"rsqrt", rsqrt, 0.1, 0x1.94c583ada5b52p+1},
    {"rsqrt", rsqrt, 7.25, 0x1.7c4dd663ebb88p-2},
    {"rcbrt", rcbrt, 2.0, 0x1.965fea53d6e3dp-1},
    {"rcbrt", rcbrt, -5.0, -0x1.2b6b5edf6b54ap-1},
    {"rcbrt", rcbrt, 1e-310, 0x1.33cfbbe460c87p+343},
    {"rcbrt", rcbrt, 1.7e+308, 0x1.9e03b39515addp-342},
    {"rcbrt", rcbrt, 0.3, 0x1.7e69c7ce33631p+0},
    {"sinpi", sinpi, 0.1, 0x1.3c6ef372fe950p-2},
    {"sinpi", sinpi, 0.25, 0x1.6a09e667f3bcdp-1},
    {"sinpi", sinpi, 0.499, 0x1.ffff5a6a681ffp-1},
    {"sinpi", sinpi, 0.75, 0x1.6a09e667f3bcdp-1},
    {"sinpi", sinpi, 1.3, -0x1.9e3779b97f4a8p-1},
    {"sinpi", sinpi, -2.6, -0x1.e6f0e134454ffp-1},
    {"sinpi", sinpi, 10000000000.3, 0x1.9e374a73b7f52p-1},
    {"sinpi", sinpi, 5e-324, 0x0.0000000000003p-1022},
    {"sinpi", sinpi, 123456.7, 0x1.9e3779b98b1bfp-1},
    {"cospi", cospi, 0.1, 0x1.e6f0e134454ffp-1},
    {"cospi", cospi, 0.25, 0x1.6a09e667f3bcdp-1},
    {"cospi", cospi, 0.4999999, 0x1.515370f9c90fep-22},
    {"cospi", cospi, 0.75, -0x1.6a09e667f3bcdp-1},
    {"cospi", cospi, 1.3, -0x1.2cf2304755a5dp-1},
    {"cospi", cospi, -2.6, -0x1.3c6ef372fe954p-2},
    {"cospi", cospi, 10000000000.3, 0x1.2cf27157f6404p-1},
    {"cospi", cospi, 123456.7, -0x1.2cf230474561bp-1},
    {"erfinv", erfinv, 1e-300, 0x1.2fdf36bf69b9fp-997},
    {"erfinv", erfinv, 0.1, 0x1.6bf442539fd74p-4},
    {"erfinv", erfinv, -0.4999, -0x1.e844d1a98ae52p-2},
    {"erfinv", erfinv, 0.5, 0x1.e861fbb24c00ap-2},
    {"erfinv", erfinv, 0.9, 0x1.29c0146770651p+0},
    {"erfinv", erfinv, -0.999999, -0x1.babd964830d58p+1},
    {"erfinv", erfinv, 0.9999999999999999, 0x1.7744f8f74e94ap+2},
    {"erfcinv", erfcinv, 5e-324, 0x1.b369a6244e684p+4},
    {"erfcinv", erfcinv, 1e-300, 0x1.a359fd2c5e942p+4},
    {"erfcinv", erfcinv, 1e-100, 0x1.e219301e62922p+3},
    {"erfcinv", erfcinv, 1e-05, 0x1.8fcc019497d9dp+1},
    {"erfcinv", erfcinv, 0.3, 0x1.773a9da42b450p-1},
    {"erfcinv", erfcinv, 0.4999, 0x1.e87f2685e6e27p-2},
    {"erfcinv", erfcinv, 0.5, 0x1.e861fbb24c00ap-2},
    {"erfcinv", erfcinv, 0.9999999, 0x1.7ca1ae4e9d449p-24},
    {"erfcinv", erfcinv, 1.3, -0x1.1700774485ed3p-2},
    {"erfcinv", erfcinv, 1.9999999, -0x1.e21eb900ee518p+1},
    {"erfcx", erfcx, -26.0, 0x1.32f288d4422dap+976},
    {"erfcx", erfcx, -5.5, 0x1.8f5aab3a871b6p+44},
    {"erfcx", erfcx, -0.1, 0x1.1fa71742a741ep+0},
    {"erfcx", erfcx, 0.0, 0x1.0000000000000p+0},
    {"erfcx", erfcx, 0.3, 0x1.781d676b434c4p-1},
    {"erfcx", erfcx, 2.7, 0x1.9332be128de7dp-3},
    {"erfcx", erfcx, 7.3, 0x1.39ac968e48d65p-4},
    {"erfcx", erfcx, 9.99, 0x1.cc5ce5bf64861p-5},
    {"erfcx", erfcx, 10.0, 0x1.cbe831f997124p-5},
    {"erfcx", erfcx, 26.5, 0x1.5c92036f02bcep-6},
    {"erfcx", erfcx, 100000.0, 0x1.7a9f084b432a7p-18},
    {"erfcx", erfcx, 1e+300, 0x1.82e6d98711d39p-998},
    {"normcdf", normcdf, -38.4, 0x0.000000000000dp-1022},
    {"normcdf", normcdf, -30.1, 0x1.28b587947b1efp-660},
    {"normcdf", normcdf, -10.3, 0x1.b4226398b0790p-82},
    {"normcdf", normcdf, -1.0, 0x1.44ed0bb7cb20bp-3},
    {"normcdf", normcdf, 0.0, 0x1.0000000000000p-1},
    {"normcdf", normcdf, 0.3, 0x1.3c5ee2cc40b79p-1},
    {"normcdf", normcdf, 2.7, 0x1.fe3993a9ccb96p-1},
    {"normcdf", normcdf, 8.5, 0x1.0000000000000p+0},
    {"normcdfinv", normcdfinv, 1e-300, -0x1.286074064c26ep+5},
    {"normcdfinv", normcdfinv, 1e-20, -0x1.2865170b43a4cp+3},
    {"normcdfinv", normcdfinv, 0.01, -0x1.29c5c4630ff0fp+1},
    {"normcdfinv", normcdfinv, 0.3, -0x1.0c7e39582c5fbp-1},
    {"normcdfinv", normcdfinv, 0.5000001, 0x1.0d25ac5f0e9c8p-22},
    {"normcdfinv", normcdfinv, 0.75, 0x1.5956b87528a49p-1},
    {"normcdfinv", normcdfinv, 0.9, 0x1.4813c36e26d33p+0},
    {"normcdfinv", normcdfinv, 0.999999, 0x1.30381a97985efp+2},
    {"cyl_bessel_i0", cyl_bessel_i0, 0.0, 0x1.0000000000000p+0},
    {"cyl_bessel_i0", cyl_bessel_i0, 1e-10, 0x1.0000000000000p+0},
    {"cyl_bessel_i0", cyl_bessel_i0, 0.7, 0x1.20556505038abp+0},
    {"cyl_bessel_i0", cyl_bessel_i0, 5.5, 0x1.558ea21e0c16fp+5},
    {"cyl_bessel_i0", cyl_bessel_i0, 19.9, 0x1.2d769042918cbp+25},
    {"cyl_bessel_i0", cyl_bessel_i0, 20.1, 0x1.6e58e90db6a62p+25},
    {"cyl_bessel_i0", cyl_bessel_i0, -35.0, 0x1.867f109680c84p+46},
    {"cyl_bessel_i0", cyl_bessel_i0, 300.0, 0x1.4a9a6ce9552ffp+427},
    {"cyl_bessel_i0", cyl_bessel_i0, 713.0, 0x1.7defd11043518p+1022},
    {"cyl_bessel_i1", cyl_bessel_i1, 1e-10, 0x1.b7cdfd9d7bdbbp-35},
    {"cyl_bessel_i1", cyl_bessel_i1, 0.7, 0x1.7cce06b865a71p-2},
    {"cyl_bessel_i1", cyl_bessel_i1, 5.5, 0x1.34b48fa67e530p+5},
    {"cyl_bessel_i1", cyl_bessel_i1, 19.9, 0x1.25c9cfeffb7ccp+25},
    {"cyl_bessel_i1", cyl_bessel_i1, 20.1, 0x1.651d5dc43a52cp+25},
    {"cyl_bessel_i1", cyl_bessel_i1, -35.0, -0x1.80e07535e8e11p+46},
    {"cyl_bessel_i1", cyl_bessel_i1, 300.0, 0x1.4a0d4007baf78p+427},
    {"cyl_bessel_i1", cyl_bessel_i1, 713.0, 0x1.7dab39e0e2874p+1022},
};

static void check_functions() {
  for (const Reference &reference : REFERENCES) {
    const double value = reference.function(reference.x), magnitude = fabs(reference.value);
    const double unit = nextafter(magnitude, INFINITY) - magnitude;
    // Where the C library's function is less exact than a unit, so is the result.
    CHECK(fabs(value - reference.value) <= 4 * unit, "%s(%.17g) is %a, not %a", reference.name, reference.x, value,
          reference.value);
  }
  const double inf = INFINITY;
  CHECK(rsqrt(0.0) == inf && rsqrt(-0.0) == -inf && rsqrt(inf) == 0 && isnan(rsqrt(-1.0)), "rsqrt");
  CHECK(rcbrt(0.0) == inf && rcbrt(-0.0) == -inf && rcbrt(inf) == 0 && isnan(rcbrt(double(NAN))), "rcbrt");
  CHECK(sinpi(1.0) == 0 && signbit(sinpi(-0.0)) && sinpi(2.5) == 1 && sinpi(-1.5) == 1 && isnan(sinpi(inf)), "sinpi");
  CHECK(cospi(0.5) == 0 && cospi(1.0) == -1 && cospi(-2.0) == 1 && cospif(1e30f) == 1 && isnan(cospi(inf)), "cospi");
  CHECK(erfinv(1.0) == inf && erfinv(-1.0) == -inf && isnan(erfinv(1.1)) && signbit(erfinv(-0.0)), "erfinv");
  CHECK(erfcinv(0.0) == inf && erfcinv(2.0) == -inf && isnan(erfcinv(-0.1)) && erfcinv(1.0) == 0, "erfcinv");
  CHECK(erfcx(-30.0) == inf && erfcx(inf) == 0 && isnan(erfcx(double(NAN))), "erfcx");
  CHECK(normcdf(-inf) == 0 && normcdf(inf) == 1 && normcdf(0.0) == 0.5 && isnan(normcdf(double(NAN))), "normcdf");
  CHECK(normcdfinv(0.0) == -inf && normcdfinv(1.0) == inf && normcdfinv(0.5) == 0, "normcdfinv");
  CHECK(cyl_bessel_i0(-inf) == inf && cyl_bessel_i1(-inf) == -inf && isnan(cyl_bessel_i0(double(NAN))), "cyl_bessel");
  CHECK(isnan(cyl_bessel_i1(double(NAN))) && cyl_bessel_i1(0.0) == 0 && cyl_bessel_i0(0.0f) == 1, "cyl_bessel");
  CHECK(norm3d(0x3p700, 0x4p700, 0.0) == 0x5p700 && norm4d(1e-200, 1e-200, 1e-200, 1e-200) == 2e-200, "norm");
  CHECK(norm3d(inf, double(NAN), 0.0) == inf && rnorm3d(0.0, 0.0, 0.0) == inf, "norm");
  CHECK(isnan(norm3d(double(NAN), 1.0, 2.0)) && isnan(normcdfinv(2.0)) && rsqrt(4.0f) == 0.5f, "NaN");
  CHECK(rhypot(3.0f, 4.0f) == 0.2f && rnorm4d(1.0, 1.0, 1.0, 1.0) == 0.5 && rhypot(inf, 1.0) == 0, "rnorm");
  const double values[] = {1, 2, 4, 10};
  CHECK(norm(4, values) == 11 && rnorm(4, values) == 1 / 11.0 && norm(0, values) == 0, "norm");
  double sine, cosine;
  sincospi(0.25, &sine, &cosine);
  CHECK(fabs(sine - CUDART_SQRT_HALF) < 1e-15 && fabs(cosine - CUDART_SQRT_HALF) < 1e-15, "sincospi");
  float sine_f, cosine_f;
  sincos(1.0f, &sine_f, &cosine_f);
  CHECK(sine_f == sinf(1.0f) && cosine_f == cosf(1.0f) && exp10(2.0f) == 100, "floats");
  CHECK(fabsf(jn(2, 1.0f) - 0.114903485f) < 1e-8f, "jn");
  CHECK(__saturatef(NAN) == 0 && __saturatef(-1) == 0 && __saturatef(2) == 1, "saturate");
  CHECK(!signbit(__saturatef(-0.0f)), "saturate");
  CHECK(isnan(__powf(-2, 2)) && __powf(2, 10) == 1024 && __exp10f(3) == 1000 && __log2f(8) == 3, "fast functions");
  CHECK(min(NAN, 1.0f) == 1 && max(2.0, double(NAN)) == 2 && isnan(min(NAN, NAN)), "NaN");
  CHECK(signbit(min(0.0f, -0.0f)) && signbit(min(-0.0f, 0.0f)), "zeros");
  CHECK(!signbit(max(-0.0, 0.0)) && !signbit(max(0.0, -0.0)), "zeros");
  CHECK(CUDART_PI == acos(-1.0) && isinf(CUDART_INF_F) && isnan(CUDART_NAN), "constants");
}

static uint64_t state = 0x9e3779b97f4a7c15u;
static uint64_t random_bits() {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}
static unsigned random_word() {
  static const unsigned special[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x80808080, 0x7fff8000, 0xff7f0180};
  return random_bits() % 8 == 0 ? special[random_bits() % 8] : static_cast<unsigned>(random_bits());
}

static void check_integers() {
  for (int i = 0; i < 100000; i++) {
    const unsigned x = random_word() >> random_bits() % 32, y = random_word(), z = random_word();
    const uint64_t wide = (static_cast<uint64_t>(x) << 32 | y) >> random_bits() % 64;
    const uint64_t other = static_cast<uint64_t>(z) << 32 | y;
    const int a = static_cast<int>(x), b = static_cast<int>(y);
    int leading = 32, first = 0, bits = 0;
    uint64_t reversed = 0;
    for (int bit = 0; bit < 32; bit++) {
      if (!(x >> bit & 1)) continue;
      leading = 31 - bit, first = first ? first : bit + 1, bits++, reversed |= 1u << (31 - bit);
    }
    CHECK(__clz(a) == leading && __ffs(a) == first && __popc(x) == bits && __brev(x) == reversed, "%x", x);
    const uint64_t high = static_cast<uint64_t>(x) << 32;
    CHECK(__clzll(static_cast<long long>(high)) == (x ? leading : 64), "%x", x);
    CHECK(__ffsll(static_cast<long long>(high)) == (x ? first + 32 : 0), "%x", x);
    CHECK(__popcll(high | x) == 2 * bits && __brevll(x) == reversed << 32, "%x", x);
    const int64_t product = static_cast<int64_t>(a) * b;
    CHECK(__mulhi(a, b) == static_cast<int>(product >> 32), "%x %x", x, y);
    CHECK(__umulhi(x, y) == static_cast<unsigned>(static_cast<uint64_t>(x) * y >> 32), "%x %x", x, y);
    // By four products of 32 bits.
    const uint64_t p = (wide & ~0u) * (other & ~0u), q = (wide >> 32) * (other & ~0u), r = (wide & ~0u) * (other >> 32);
    const uint64_t middle = (p >> 32) + (q & ~0u) + (r & ~0u);
    const uint64_t upper = (wide >> 32) * (other >> 32) + (q >> 32) + (r >> 32) + (middle >> 32);
    CHECK(__umul64hi(wide, other) == upper, "%llx", static_cast<unsigned long long>(wide));
    const uint64_t signed_upper = upper - (wide >> 63 ? other : 0) - (other >> 63 ? wide : 0);
    const long long signed_product = __mul64hi(static_cast<long long>(wide), static_cast<long long>(other));
    CHECK(signed_product == static_cast<long long>(signed_upper), "%llx", signed_product);
    CHECK(__umul24(x, y) == static_cast<unsigned>(static_cast<uint64_t>(x & 0xffffff) * (y & 0xffffff)), "%x %x", x, y);
    const auto low24 = [](unsigned v) { return int64_t(v & 0xffffff) - (v & 0x800000 ? 1 << 24 : 0); };
    const int64_t a24 = low24(x), b24 = low24(y);
    CHECK(__mul24(a, b) == static_cast<int>(a24 * b24), "%x %x", x, y);
    const int64_t difference = static_cast<int64_t>(a) - b;
    CHECK(__sad(a, b, z) == static_cast<unsigned>(difference < 0 ? -difference : difference) + z, "%x %x", x, y);
    CHECK(__usad(x, y, z) == (x > y ? x - y : y - x) + z, "%x %x", x, y);
    CHECK(__hadd(a, b) == static_cast<int>(floor((double(a) + b) / 2)), "%d %d", a, b);
    CHECK(__rhadd(a, b) == static_cast<int>(floor((double(a) + b + 1) / 2)), "%d %d", a, b);
    CHECK(__uhadd(x, y) == (x & y) + ((x ^ y) >> 1) && __urhadd(x, y) == (x | y) - ((x ^ y) >> 1), "%x %x", x, y);
    const unsigned shift = static_cast<unsigned>(random_bits()) % 70, wrapped = shift % 32;
    const unsigned left = wrapped ? y << wrapped | x >> (32 - wrapped) : y;
    const unsigned right = wrapped ? x >> wrapped | y << (32 - wrapped) : x;
    CHECK(__funnelshift_l(x, y, shift) == left && __funnelshift_r(x, y, shift) == right, "%u", shift);
    CHECK(__funnelshift_lc(x, y, shift) == (shift >= 32 ? x : left), "%u", shift);
    CHECK(__funnelshift_rc(x, y, shift) == (shift >= 32 ? y : right), "%u", shift);
    unsigned permuted = 0, dot_s = z, dot_u = z, dot2_s = z;
    for (int k = 0; k < 4; k++) {
      const unsigned pick = z >> (4 * k) & 7;
      permuted |= ((pick < 4 ? x >> (8 * pick) : y >> (8 * (pick - 4))) & 255u) << (8 * k);
      dot_s += static_cast<unsigned>(static_cast<int8_t>(x >> (8 * k)) * static_cast<int8_t>(y >> (8 * k)));
      dot_u += (x >> (8 * k) & 255) * (y >> (8 * k) & 255);
      const int half = k < 2 ? 0 : static_cast<int16_t>(x >> (16 * (k - 2)));
      dot2_s += static_cast<unsigned>(half * static_cast<int8_t>(y >> (8 * k)));
    }
    CHECK(__byte_perm(x, y, z) == permuted, "%x %x %x", x, y, z);
    CHECK(__dp4a(a, b, static_cast<int>(z)) == static_cast<int>(dot_s), "%x %x %x", x, y, z);
    CHECK(__dp4a(x, y, z) == dot_u, "%x %x %x", x, y, z);
    CHECK(__dp2a_hi(a, b, static_cast<int>(z)) == static_cast<int>(dot2_s), "%x %x %x", x, y, z);
    CHECK(__hiloint2double(__double2hiint(1.0 / a), __double2loint(1.0 / a)) == 1.0 / a || a == 0, "%d", a);
  }
}

// Compares a function on vectors in a word with a formula for one lane.
template <typename T, typename Word, typename Lane> void check_simd(const char *name, Word word, Lane lane) {
  for (int i = 0; i < 20000; i++) {
    const unsigned x = random_word(), y = random_bits() % 4 ? random_word() : x;
    unsigned expected = 0;
    for (unsigned at = 0; at < 32; at += 8 * sizeof(T)) {
      const int64_t a = static_cast<T>(x >> at), b = static_cast<T>(y >> at);
      expected |= (static_cast<unsigned>(lane(a, b)) & (0xffffffffu >> (32 - 8 * sizeof(T)))) << at;
    }
    CHECK(word(x, y) == expected, "%s %x %x: %x, not %x", name, x, y, word(x, y), expected);
  }
}
#define CHECK_SIMD(T, name, formula)                                         \
  check_simd<T>(#name, [](unsigned x, unsigned y) { return (void)y, name; }, \
                [](int64_t a, int64_t b) { return (void)b, formula; });
template <typename T> int64_t clamp(int64_t value) {
  const int64_t least = T(-1) < 0 ? -(int64_t(1) << (8 * sizeof(T) - 1)) : 0;
  const int64_t greatest = least + (int64_t(1) << 8 * sizeof(T)) - 1;
  return value < least ? least : value > greatest ? greatest : value;
}
#define CHECK_SIMD_COUNT(count, S, U)                                                                         \
  CHECK_SIMD(S, __vabs##count(x), a < 0 ? -a : a) CHECK_SIMD(S, __vabsss##count(x), clamp<S>(a < 0 ? -a : a)) \
  CHECK_SIMD(S, __vneg##count(x), -a) CHECK_SIMD(S, __vnegss##count(x), clamp<S>(-a))                         \
  CHECK_SIMD(U, __vadd##count(x, y), a + b) CHECK_SIMD(S, __vaddss##count(x, y), clamp<S>(a + b))             \
  CHECK_SIMD(U, __vaddus##count(x, y), clamp<U>(a + b)) CHECK_SIMD(U, __vsub##count(x, y), a - b)             \
  CHECK_SIMD(S, __vsubss##count(x, y), clamp<S>(a - b)) CHECK_SIMD(U, __vsubus##count(x, y), clamp<U>(a - b)) \
  CHECK_SIMD(S, __vavgs##count(x, y), static_cast<int64_t>(round(double(a + b) / 2)))                         \
  CHECK_SIMD(U, __vavgu##count(x, y), (a + b + 1) / 2) CHECK_SIMD(U, __vhaddu##count(x, y), (a + b) / 2)      \
  CHECK_SIMD(S, __vabsdiffs##count(x, y), llabs(a - b)) CHECK_SIMD(U, __vabsdiffu##count(x, y), llabs(a - b)) \
  CHECK_SIMD(S, __vmaxs##count(x, y), max(a, b)) CHECK_SIMD(U, __vmaxu##count(x, y), max(a, b))               \
  CHECK_SIMD(S, __vmins##count(x, y), min(a, b)) CHECK_SIMD(U, __vminu##count(x, y), min(a, b))               \
  CHECK_SIMD(S, __vcmpeq##count(x, y), -(a == b)) CHECK_SIMD(S, __vsetne##count(x, y), a != b)                \
  CHECK_SIMD(S, __vcmpges##count(x, y), -(a >= b)) CHECK_SIMD(U, __vcmpgeu##count(x, y), -(a >= b))           \
  CHECK_SIMD(S, __vsetgts##count(x, y), a > b) CHECK_SIMD(U, __vsetgtu##count(x, y), a > b)                   \
  CHECK_SIMD(S, __vcmples##count(x, y), -(a <= b)) CHECK_SIMD(U, __vsetleu##count(x, y), a <= b)              \
  CHECK_SIMD(S, __vsetlts##count(x, y), a < b) CHECK_SIMD(U, __vcmpltu##count(x, y), -(a < b))
static void check_vectors_in_words() {
  CHECK_SIMD_COUNT(2, int16_t, uint16_t)
  CHECK_SIMD_COUNT(4, int8_t, uint8_t)
  CHECK_SIMD(int16_t, __viaddmax_s16x2_relu(x, y, x), max(max(int64_t(int16_t(a + b)), a), int64_t(0)))
  CHECK_SIMD(uint16_t, __viaddmin_u16x2(x, y, y), min(int64_t(uint16_t(a + b)), b))
  CHECK(__vsads4(0x807f0001, 0x7f800000) == 511 && __vsadu4(0xff000001, 0x00ff0000) == 511, "sums of differences");
  CHECK(__vsads2(0x80000000, 0x7fff0001) == 65536 && __vsadu2(0xffff0000, 0x0000ffff) == 131070, "sums of differences");
  CHECK(__viaddmax_s32(INT_MAX, 1, -5) == -5 && __vimax3_s32_relu(-1, -2, -3) == 0, "DPX");
  bool high, low;
  CHECK(__vibmax_s16x2(0x00018000, 0x00017fff, &high, &low) == 0x00017fff && high && !low, "DPX");
  CHECK(__vibmin_u32(3, 0xffffffff, &low) == 3 && low, "DPX");
  CHECK(__vimin3_u32(3, 2, 1) == 1 && __vibmax_s32(3, -1, &high) == 3 && high, "DPX");
}

int main() {
  check_functions();
  check_integers();
  check_vectors_in_words();
  printf(failures == 0 ? "math: passed\n" : "math: %d failures\n", failures);
  return failures != 0;
}
