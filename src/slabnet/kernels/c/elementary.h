/* Elementary functions, one weight's numbers, and random numbers, as loops of kernels.c use them. */

#ifndef SLABNET_ELEMENTARY_H
#define SLABNET_ELEMENTARY_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _MSC_VER
#define EXPORT __declspec(dllexport)
#define RESTRICT __restrict
#define INLINE static __forceinline
#define ONCE static __declspec(noinline)
#define SIMD
#define SIMD_SUM(...)
#define THREADS(...)
#define PREFETCH(address)
#else
#define EXPORT __attribute__((visibility("default")))
#define RESTRICT __restrict__
#define INLINE static inline __attribute__((always_inline))
#define ONCE static __attribute__((noinline))   /* one copy for all loops that need it */
#define PRAGMA(text) _Pragma(#text)
#define PREFETCH(address) __builtin_prefetch(address, 1, 2)   /* into the second cache */
#ifdef _OPENMP
#define SIMD _Pragma("omp simd")
#define SIMD_SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define THREADS(when) PRAGMA(omp parallel for schedule(static) num_threads(threads) if (when))
#else
#define SIMD
#define SIMD_SUM(...)
#define THREADS(when)
#endif
#endif

enum { LANES = 16, PAIR = 2 * LANES, PIECE = 512, ROUNDS = 7 };
/* Work up to this is done by one thread: sharing it costs as much, and where other processes keep the cores busy, each
   region waits for a thread that is not running. */
enum { FEW_PIECES = 32, FEW_NUMBERS = 1 << 15, FEW_PRODUCTS = 1 << 21 };
enum { RELAXED = 0, HARD = 1 };                       /* how an indicator is drawn */
enum { EXACT_KL = 1, SAMPLED_KL = 2 };                /* which divergence is returned */

/* ---- elementary functions, about 1e-7 of relative error ---- */

INLINE float bits_to_float(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
INLINE uint32_t float_to_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

/* a + b x + c x^2 + d x^3, in two steps instead of three: short chains of dependence keep the pipes full */
INLINE float cubic(float x, float x2, float a, float b, float c, float d) { return (a + b * x) + (c + d * x) * x2; }

/* exp(x) for x <= 0 */
INLINE float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  float whole = (x * 1.44269504f + 12582912.0f) - 12582912.0f;   /* rounds: breaks under -ffast-math */
  float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f, r2 = r * r;
  float low = cubic(r, r2, 1.0f, 1.0f, 0.5f, 0.1666657703f);
  float high = (0.04166655466f + 0.008363173075f * r) + 0.001392617612f * r2;
  return (low + high * (r2 * r2)) * bits_to_float((uint32_t)((int32_t)whole + 127) << 23);
}

/* log(1 + e) for 0 <= e <= 1, to 1e-7 in relative terms however small e is */
INLINE float log1p_unit(float e) {
  float e2 = e * e, e4 = e2 * e2;
  float low = cubic(e, e2, 0.9999999659f, -0.4999944498f, 0.3331812171f, -0.2483539899f);
  float high = cubic(e, e2, 0.1907688074f, -0.1360224762f, 0.07751608674f, -0.02907406468f);
  return e * (low + e4 * (high + e4 * 0.005126102141f));
}

/* log of a positive normal number */
INLINE float fast_log(float x) {
  uint32_t bits = float_to_bits(x), above = (bits - 0x3f3504f3u) & 0xff800000u;   /* mantissa in [sqrt(1/2), sqrt(2)) */
  float f = bits_to_float(bits - above) - 1.0f, e = (float)((int32_t)above >> 23), f2 = f * f;
  float low = cubic(f, f2, 0.3333333073f, -0.2500030642f, 0.2000104509f, -0.1664128146f);
  float high = cubic(f, f2, 0.1421449592f, -0.1299818376f, 0.1262231985f, -0.07902743772f);
  float p = (low + high * (f2 * f2)) * f - 0.5f;
  return (p * f2 - e * 2.12194440e-4f) + (f + e * 0.693359375f);
}

/* exp(-|x|), zero where sigmoid(x) is decided */
INLINE float tail(float x) {
  float size = fabsf(x), e = fast_exp(-size);
  return size > 87.0f ? 0.0f : e;
}

/* ---- the weights of a piece, everything from two exponentials and one division. Taken in stages, each a loop with a
   short chain of arithmetic: all of it in one loop is as long as a processor looks ahead, and waits for itself. ---- */

typedef struct {
  float e_omega[PIECE], log1p_omega[PIECE];           /* exp(-|omega|), log(1 + that) */
  float e_rho[PIECE], sigma[PIECE], log_sigma[PIECE];
} Stages;

typedef struct {
  float alpha, not_alpha, log_alpha, tail;            /* of omega; tail = exp(-|omega|); log_alpha only forward */
  float sigma, log_sigma, slope, slope_over_sigma;    /* of rho; slope = d sigma / d rho, only back */
} Weight;

ONCE void stages(int count, int has_omega, int back, const float *RESTRICT omega, const float *RESTRICT rho,
                 Stages *RESTRICT s) {
  SIMD
  for (int i = 0; i < count; i++) s->e_rho[i] = fast_exp(-fabsf(rho[i]));
  if (has_omega) {
    SIMD
    for (int i = 0; i < count; i++) s->e_omega[i] = tail(omega[i]);
  }
  SIMD
  for (int i = 0; i < count; i++) s->sigma[i] = (rho[i] > 0 ? rho[i] : 0.0f) + log1p_unit(s->e_rho[i]);
  if (has_omega && !back) {
    SIMD
    for (int i = 0; i < count; i++) s->log1p_omega[i] = log1p_unit(s->e_omega[i]);
  }
  SIMD
  for (int i = 0; i < count; i++) {                   /* under -12 sigma = e_rho - e_rho^2/2 to float precision */
    float log_sigma = fast_log(s->sigma[i]);
    s->log_sigma[i] = rho[i] < -12.0f ? rho[i] - 0.5f * s->e_rho[i] : log_sigma;
  }
}

INLINE Weight weight_at(const Stages *RESTRICT s, int i, float omega, float rho, int has_omega, int back) {
  const float e_omega = has_omega ? s->e_omega[i] : 0.0f, e_rho = s->e_rho[i], a = 1.0f + e_omega;
  Weight w;
  w.tail = e_omega;
  w.sigma = s->sigma[i];
  w.log_sigma = s->log_sigma[i];
  float sigmoid_omega;                                /* of the absolute value, as sigmoid_rho */
  if (back) {
    float b = 1.0f + e_rho, r = 1.0f / (a * b * w.sigma), sigmoid_rho = r * a * w.sigma;   /* sigma >= exp(-87) */
    sigmoid_omega = r * b * w.sigma;
    w.slope = rho >= 0 ? sigmoid_rho : e_rho * sigmoid_rho;
    w.slope_over_sigma = w.slope * (r * a * b);
  } else {
    sigmoid_omega = 1.0f / a;
    if (has_omega) w.log_alpha = (omega < 0 ? omega : 0.0f) - s->log1p_omega[i];
  }
  w.alpha = omega >= 0 ? sigmoid_omega : e_omega * sigmoid_omega;
  w.not_alpha = omega >= 0 ? e_omega * sigmoid_omega : sigmoid_omega;
  return w;
}

/* ---- random numbers: Philox4x32-7, counter (c0, c1, 0, 0), one counter for two weights ---- */

#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512i Wide;
#define MULTIPLY _mm512_mul_epu32
#define XOR _mm512_xor_si512
#define ADD _mm512_add_epi64
#define HIGH(x) _mm512_srli_epi64(x, 32)
#define ALL(x) _mm512_set1_epi64(x)
#elif defined(__AVX2__)
#include <immintrin.h>
typedef __m256i Wide;
#define MULTIPLY _mm256_mul_epu32
#define XOR _mm256_xor_si256
#define ADD _mm256_add_epi64
#define HIGH(x) _mm256_srli_epi64(x, 32)
#define ALL(x) _mm256_set1_epi64x(x)
#elif defined(__SSE2__)
#include <emmintrin.h>
typedef __m128i Wide;
#define MULTIPLY _mm_mul_epu32
#define XOR _mm_xor_si128
#define ADD _mm_add_epi64
#define HIGH(x) _mm_srli_epi64(x, 32)
#define ALL(x) _mm_set1_epi64x(x)
#else
typedef uint64_t Wide;
#define MULTIPLY(x, y) (((x) & 0xffffffffu) * ((y) & 0xffffffffu))
#define XOR(x, y) ((x) ^ (y))
#define ADD(x, y) ((x) + (y))
#define HIGH(x) ((x) >> 32)
#define ALL(x) ((uint64_t)(x))
#endif

/* LANES counters at once. A word lives in the low half of a 64-bit lane: the multiplication ignores the other half.
   Intrinsics, because compilers turn the 32 x 32 -> 64 bit product into a slow 64-bit one. */
INLINE void philox_from(const uint64_t *ramp, uint32_t counter, uint32_t row, uint32_t k0, uint32_t k1,
                        uint64_t words[4][LANES]) {
  enum { STEP = sizeof(Wide) / sizeof(uint64_t), TWICE = 2 * STEP };
  const Wide m0 = ALL(0xD2511F53), m1 = ALL(0xCD9E8D57);
  for (int j = 0; j < LANES; j += TWICE) {            /* two at a time hide each other's latency */
    Wide x0, x1 = ALL(row), x2 = ALL(0), x3 = ALL(0), y0, y1 = x1, y2 = x2, y3 = x3;
    memcpy(&x0, ramp + j, sizeof x0);
    memcpy(&y0, ramp + j + STEP, sizeof y0);
    x0 = ADD(x0, ALL(counter));
    y0 = ADD(y0, ALL(counter));
    uint32_t a = k0, b = k1;
    for (int round = 0; round < ROUNDS; round++) {
      Wide key0 = ALL(a), key1 = ALL(b);
      Wide x_from0 = MULTIPLY(x0, m0), x_from2 = MULTIPLY(x2, m1);
      Wide y_from0 = MULTIPLY(y0, m0), y_from2 = MULTIPLY(y2, m1);
      x0 = XOR(XOR(HIGH(x_from2), x1), key0);
      y0 = XOR(XOR(HIGH(y_from2), y1), key0);
      x2 = XOR(XOR(HIGH(x_from0), x3), key1);
      y2 = XOR(XOR(HIGH(y_from0), y3), key1);
      x1 = x_from2, x3 = x_from0, y1 = y_from2, y3 = y_from0;
      a += 0x9E3779B9u;
      b += 0xBB67AE85u;
    }
    memcpy(words[0] + j, &x0, sizeof x0);
    memcpy(words[1] + j, &x1, sizeof x0);
    memcpy(words[2] + j, &x2, sizeof x0);
    memcpy(words[3] + j, &x3, sizeof x0);
    memcpy(words[0] + j + STEP, &y0, sizeof y0);
    memcpy(words[1] + j + STEP, &y1, sizeof y0);
    memcpy(words[2] + j + STEP, &y2, sizeof y0);
    memcpy(words[3] + j + STEP, &y3, sizeof y0);
  }
}

INLINE void philox(uint32_t counter, uint32_t row, uint32_t k0, uint32_t k1, uint64_t words[4][LANES]) {
  static const uint64_t ramp[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  philox_from(ramp, counter, row, k0, k1, words);
}

/* 23 bits, strictly inside (0, 1), exact in float; so is 1 - u */
INLINE float unit(uint32_t word) { return ((float)(int32_t)(word >> 9) + 0.5f) * 1.1920928955078125e-7f; }

INLINE void box_muller(uint32_t word_r, uint32_t word_t, float *with_cos, float *with_sin) {
  float r = sqrtf(-2.0f * fast_log(unit(word_r)));
  float u = unit(word_t);
  int32_t quarter = (int32_t)(4.0f * u + 0.5f);
  float a = (u - 0.25f * (float)quarter) * 6.283185307179586f, a2 = a * a;
  float s = a * (1.0f + a2 * (-1.0f / 6 + a2 * (1.0f / 120 + a2 * (-1.0f / 5040 + a2 * (1.0f / 362880)))));
  float c = 1.0f + a2 * (-0.5f + a2 * (1.0f / 24 + a2 * (-1.0f / 720 + a2 * (1.0f / 40320 - a2 * (1.0f / 3628800)))));
  float ours = quarter & 1 ? s : c, other = quarter & 1 ? c : s;
  *with_cos = r * ((quarter + 1) & 2 ? -ours : ours);
  *with_sin = r * (quarter & 2 ? -other : other);
}

/* Normals and uniforms of elements [first, first + count) of row `row`; first is a multiple of PAIR.
   Element i has counter (i / PAIR) * LANES + i % LANES; the first half of a PAIR takes cosines, the second sines. */
INLINE void noise(int64_t first, int count, uint32_t row, uint32_t k0, uint32_t k1, int uniforms,
                  float *RESTRICT eps, float *RESTRICT nu) {
  for (int start = 0; start < count; start += PAIR) {
    uint32_t counter = (uint32_t)((first + start) / PAIR * LANES);
    float *RESTRICT e = eps + start, *RESTRICT n = nu + start;
    uint64_t words[4][LANES];
    philox(counter, row, k0, k1, words);
    SIMD
    for (int j = 0; j < LANES; j++) box_muller((uint32_t)words[0][j], (uint32_t)words[1][j], &e[j], &e[j + LANES]);
    if (uniforms) {
      SIMD
      for (int j = 0; j < LANES; j++) {
        n[j] = unit((uint32_t)words[2][j]);
        n[j + LANES] = unit((uint32_t)words[3][j]);
      }
    }
  }
}

/* The same numbers for the elements `places` of a row, wherever in it they lie: what is left of a block that was cut. */
INLINE void noise_at(const int64_t *RESTRICT places, int count, uint32_t row, uint32_t k0, uint32_t k1, int uniforms,
                     float *RESTRICT eps, float *RESTRICT nu) {
  for (int start = 0; start < count; start += LANES) {
    const int some = count - start < LANES ? count - start : LANES;
    uint64_t counters[LANES] = {0}, words[4][LANES];
    float with_cos[LANES], with_sin[LANES];
    for (int j = 0; j < some; j++) {
      const uint64_t i = (uint64_t)places[start + j];
      counters[j] = i / PAIR * LANES + i % LANES;
    }
    philox_from(counters, 0, row, k0, k1, words);
    SIMD
    for (int j = 0; j < LANES; j++) box_muller((uint32_t)words[0][j], (uint32_t)words[1][j], &with_cos[j], &with_sin[j]);
    for (int j = 0; j < some; j++) {
      const int second = (int)(places[start + j] / LANES % 2);
      eps[start + j] = second ? with_sin[j] : with_cos[j];
      if (uniforms) nu[start + j] = unit((uint32_t)words[2 + second][j]);
    }
  }
}

INLINE float logit(float nu) { return fast_log(nu) - fast_log(1.0f - nu); }

#endif
