/* The passes over the weights of a training step, one loop per direction.

   Readable versions in torch, which these must equal: reference.py (formulas) and philox.py (random numbers).
   Plain C on data pointers: compiled once per instruction set, chosen when loaded (native.py).
   Loops vectorise because pointers are restrict arguments and exp, log, sin and cos are inline polynomials.
   Sums are taken over pieces of fixed length and added in order: the number of threads changes nothing. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _MSC_VER
#define EXPORT __declspec(dllexport)
#define RESTRICT __restrict
#define INLINE static __forceinline
#define SIMD
#define SIMD_SUM(x)
#define THREADS(...)
#else
#define EXPORT __attribute__((visibility("default")))
#define RESTRICT __restrict__
#define INLINE static inline __attribute__((always_inline))
#define PRAGMA(text) _Pragma(#text)
#ifdef _OPENMP
#define SIMD _Pragma("omp simd")
#define SIMD_SUM(x) PRAGMA(omp simd reduction(+ : x))
#define THREADS(when) PRAGMA(omp parallel for schedule(static) num_threads(threads) if (when))
#else
#define SIMD
#define SIMD_SUM(x)
#define THREADS(when)
#endif
#endif

enum { LANES = 16, PAIR = 2 * LANES, PIECE = 2048 };
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
  float low = cubic(r, r2, 1.0f, 1.0f, 0.5f, 1.0f / 6);
  float high = cubic(r, r2, 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040);
  return (low + high * (r2 * r2)) * bits_to_float((uint32_t)((int32_t)whole + 127) << 23);
}

/* log(1 + e) for 0 <= e <= 1, to 1e-7 in relative terms however small e is */
INLINE float log1p_unit(float e) {
  float e2 = e * e, e4 = e2 * e2;
  float low = cubic(e, e2, 0.9999999947f, -0.4999989265f, 0.333297105f, -0.2495161626f);
  float high = cubic(e, e2, 0.1966327426f, -0.1526966707f, 0.105436238f, -0.05637361283f);
  float top = 0.01954252726f - 0.003176057018f * e;
  return e * (low + e4 * (high + e4 * top));
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

/* ---- one weight: everything from two exponentials and one division ---- */

typedef struct {
  float alpha, not_alpha, log_alpha, tail;            /* of omega; tail = exp(-|omega|) */
  float sigma, log_sigma, slope, slope_over_sigma;    /* of rho; slope = d sigma / d rho */
} Weight;

INLINE Weight weight_of(float omega, float rho, int has_omega, int back) {
  float e_omega = has_omega ? tail(omega) : 0.0f, e_rho = fast_exp(-fabsf(rho));
  int tiny = rho < -12.0f;                            /* here sigma = e_rho - e_rho^2/2 to float precision */
  Weight w;
  w.sigma = (rho > 0 ? rho : 0.0f) + log1p_unit(e_rho);
  w.log_sigma = tiny ? rho - 0.5f * e_rho : fast_log(w.sigma);
  float a = 1.0f + e_omega, b = 1.0f + e_rho, c = back && !tiny ? w.sigma : 1.0f;
  float r = 1.0f / (a * b * c);
  float sigmoid_omega = r * b * c, sigmoid_rho = r * a * c;   /* of the absolute values */
  w.alpha = omega >= 0 ? sigmoid_omega : e_omega * sigmoid_omega;
  w.not_alpha = omega >= 0 ? e_omega * sigmoid_omega : sigmoid_omega;
  w.tail = e_omega;
  w.log_alpha = (omega < 0 ? omega : 0.0f) - log1p_unit(e_omega);
  w.slope = rho >= 0 ? sigmoid_rho : e_rho * sigmoid_rho;
  w.slope_over_sigma = tiny ? 1.0f - 0.5f * e_rho : w.slope * (r * a * b);
  return w;
}

/* ---- random numbers: Philox4x32-10, counter (c0, c1, 0, 0), one counter for two weights ---- */

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
INLINE void philox(uint32_t counter, uint32_t row, uint32_t k0, uint32_t k1, uint64_t words[4][LANES]) {
  static const uint64_t ramp[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  enum { STEP = sizeof(Wide) / sizeof(uint64_t), TWICE = 2 * STEP };
  const Wide m0 = ALL(0xD2511F53), m1 = ALL(0xCD9E8D57);
  for (int j = 0; j < LANES; j += TWICE) {            /* two at a time hide each other's latency */
    Wide x0, x1 = ALL(row), x2 = ALL(0), x3 = ALL(0), y0, y1 = x1, y2 = x2, y3 = x3;
    memcpy(&x0, ramp + j, sizeof x0);
    memcpy(&y0, ramp + j + STEP, sizeof y0);
    x0 = ADD(x0, ALL(counter));
    y0 = ADD(y0, ALL(counter));
    uint32_t a = k0, b = k1;
    for (int round = 0; round < 10; round++) {
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

INLINE float logit(float nu) { return fast_log(nu) - fast_log(1.0f - nu); }

static double ordered_sum(const float *parts, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; i++) total += parts[i];
  return total;
}

/* ---- the prior of a block: one value, or (step 1) one for each weight ---- */

typedef struct { const float *log_psi, *log_not_psi; int step; float log_s; } Prior;

INLINE float kl_slab(float mu, Weight w, float precision, float log_s) {
  return 0.5f * ((w.sigma * w.sigma + mu * mu) * precision - 1.0f) - w.log_sigma + log_s;
}

/* ---- moments: mean and variance of every weight, and the divergence ---- */

INLINE float moments_piece(int count, int step, int has_omega, const float *RESTRICT mu, const float *RESTRICT rho,
                           const float *RESTRICT omega, const float *RESTRICT log_psi,
                           const float *RESTRICT log_not_psi, float log_s, float *RESTRICT mean,
                           float *RESTRICT variance) {
  const float precision = expf(-2.0f * log_s);
  float sum = 0;
  SIMD_SUM(sum)
  for (int i = 0; i < count; i++) {
    float m = mu[i], o = has_omega ? omega[i] : 0.0f;
    Weight w = weight_of(o, rho[i], has_omega, 0);
    float slab = kl_slab(m, w, precision, log_s), s2 = w.sigma * w.sigma;
    if (has_omega) {
      mean[i] = w.alpha * m;
      variance[i] = w.alpha * (s2 + w.not_alpha * m * m);
      sum += w.alpha * (w.log_alpha - log_psi[i * step] + slab);
      sum += w.not_alpha * (w.log_alpha - o - log_not_psi[i * step]);
    } else {
      if (mean) mean[i] = m;
      variance[i] = s2;
      sum += slab;
    }
  }
  return sum;
}

INLINE float moments_back_piece(int count, int step, int has_omega, const float *RESTRICT mu,
                                const float *RESTRICT rho, const float *RESTRICT omega,
                                const float *RESTRICT log_psi, const float *RESTRICT log_not_psi, float log_s,
                                const float *RESTRICT g_mean, const float *RESTRICT g_variance, float g_kl,
                                float *RESTRICT d_mu, float *RESTRICT d_rho, float *RESTRICT d_omega) {
  const float precision = expf(-2.0f * log_s);
  float sum = 0;
  SIMD_SUM(sum)
  for (int i = 0; i < count; i++) {
    float m = mu[i], gm = g_mean ? g_mean[i] : 0.0f, gv = g_variance[i], o = has_omega ? omega[i] : 0.0f;
    Weight w = weight_of(o, rho[i], has_omega, 1);
    float alpha = has_omega ? w.alpha : 1.0f, s2 = w.sigma * w.sigma, square = m * m;
    float pull = g_kl * (s2 * precision - 1.0f) * w.slope_over_sigma;
    d_rho[i] = alpha * (2.0f * gv * w.sigma * w.slope + pull);
    sum += alpha * (1.0f - (s2 + square) * precision);
    if (has_omega) {
      float t = o - (log_psi[i * step] - log_not_psi[i * step]) + kl_slab(m, w, precision, log_s);
      float d_alpha = gm * m + gv * (s2 + (w.not_alpha - alpha) * square) + g_kl * t;
      d_mu[i] = alpha * (gm + 2.0f * gv * w.not_alpha * m + g_kl * m * precision);
      d_omega[i] = alpha * w.not_alpha * d_alpha;
    } else {
      d_mu[i] = gm + g_kl * m * precision;
    }
  }
  return sum * g_kl;
}

/* ---- draws: the value of every weight, and the divergence in closed form or at the draw ---- */

/* the share of the slab in log q - log p at the drawn beta = mu + sigma * eps */
INLINE float slab_at_draw(float beta, float eps, Weight w, float precision, float log_s) {
  return 0.5f * (beta * beta * precision - eps * eps) - w.log_sigma + log_s;
}

/* gamma = sigmoid((omega - logit(nu)) / delta) as the smaller of gamma and -(1 - gamma): nothing is lost next to 0 or
   next to 1, and the sign is the straight-through indicator. At delta = 1/2, the default, odds are squares of odds
   and no function is needed. */
INLINE float signed_gamma(float omega, float tail_, float nu, float sharp, int halves) {
  float small, side;
  if (halves) {
    float a = omega >= 0 ? nu : 1.0f - nu, b = 1.0f - a;
    float against = tail_ * a * (tail_ * a), in_favour = b * b, gap = in_favour - against;
    small = (gap > 0 ? against : in_favour) / (against + in_favour);
    side = omega >= 0 ? gap : -gap;
  } else {
    side = (omega - logit(nu)) * sharp;
    float e = tail(side);
    small = e / (1.0f + e);
  }
  float at_least = small > 1e-37f ? small : 1e-37f;
  return side > 0 ? -at_least : small;
}

INLINE float draw_piece(int count, int step, int has_omega, int kind, int kl, int halves, const float *RESTRICT mu,
                        const float *RESTRICT rho, const float *RESTRICT omega, const float *RESTRICT log_psi,
                        const float *RESTRICT log_not_psi, float log_s, float delta, const float *RESTRICT eps,
                        const float *RESTRICT nu, float *RESTRICT value, float *RESTRICT kept_eps,
                        float *RESTRICT soft) {
  const float precision = expf(-2.0f * log_s), sharp = 1.0f / delta;
  float sum = 0;
  SIMD_SUM(sum)
  for (int i = 0; i < count; i++) {
    float m = mu[i], e = eps[i], o = has_omega ? omega[i] : 0.0f;
    Weight w = weight_of(o, rho[i], has_omega, 0);
    float beta = m + w.sigma * e, gamma = 1.0f;
    kept_eps[i] = e;
    if (has_omega) {
      float side = signed_gamma(o, w.tail, nu[i], sharp, halves);
      soft[i] = side;
      gamma = side < 0 ? (kind == HARD ? 1.0f : 1.0f + side) : (kind == HARD ? 0.0f : side);
    }
    value[i] = gamma * beta;
    float slab = kl == SAMPLED_KL ? slab_at_draw(beta, e, w, precision, log_s) : kl_slab(m, w, precision, log_s);
    if (has_omega) {
      float on = w.log_alpha - log_psi[i * step] + slab, off = w.log_alpha - o - log_not_psi[i * step];
      sum += kl == SAMPLED_KL ? gamma * on + (1.0f - gamma) * off : w.alpha * on + w.not_alpha * off;
    } else {
      sum += slab;
    }
  }
  return sum;
}

INLINE float draw_back_piece(int count, int step, int has_omega, int kind, int kl, const float *RESTRICT mu,
                             const float *RESTRICT rho, const float *RESTRICT omega, const float *RESTRICT log_psi,
                             const float *RESTRICT log_not_psi, float log_s, float delta,
                             const float *RESTRICT eps, const float *RESTRICT soft, const float *RESTRICT g_value,
                             float g_kl, float *RESTRICT d_mu, float *RESTRICT d_rho, float *RESTRICT d_omega) {
  const float precision = expf(-2.0f * log_s), sharp = 1.0f / delta;
  float sum = 0;
  SIMD_SUM(sum)
  for (int i = 0; i < count; i++) {
    float m = mu[i], g = g_value[i], e = eps[i], o = has_omega ? omega[i] : 0.0f;
    Weight w = weight_of(o, rho[i], has_omega, 1);
    float beta = m + w.sigma * e, gamma = 1.0f, gate = 0.0f;
    if (has_omega) {
      float side = soft[i], small = fabsf(side);
      gamma = kind == HARD ? (side < 0 ? 1.0f : 0.0f) : (side < 0 ? 1.0f + side : side);
      gate = small * (1.0f - small) * sharp;          /* d gamma / d omega */
    }
    float present = kl == EXACT_KL && has_omega ? w.alpha : gamma;
    float at = kl == SAMPLED_KL ? beta : m, turn = kl == SAMPLED_KL ? beta * e * w.sigma : w.sigma * w.sigma;
    float square = kl == SAMPLED_KL ? beta * beta : w.sigma * w.sigma + m * m;
    float k = g_kl * present;
    d_mu[i] = g * gamma + k * at * precision;
    d_rho[i] = g * gamma * e * w.slope + k * (turn * precision - 1.0f) * w.slope_over_sigma;
    sum += present * (1.0f - square * precision);
    if (has_omega) {
      float slab = kl == SAMPLED_KL ? slab_at_draw(beta, e, w, precision, log_s) : kl_slab(m, w, precision, log_s);
      float t = g_kl * (o - (log_psi[i * step] - log_not_psi[i * step]) + slab);
      if (kl == SAMPLED_KL)
        d_omega[i] = gate * (g * beta + t) + g_kl * (gamma - w.alpha);
      else
        d_omega[i] = gate * g * beta + w.alpha * w.not_alpha * t;
    }
  }
  return sum * g_kl;
}

/* ---- what Python calls. `add`: to what is in `sum` already. Missing omega: every weight is in.
   Pieces are cut the same for any number of threads. ---- */

#define EACH_PIECE(body)                                                                    \
  int64_t pieces = (n + PIECE - 1) / PIECE;                                                 \
  float *parts = (float *)calloc((size_t)pieces + 1, sizeof(float));                        \
  if (!parts) return 1;                                                                     \
  THREADS(pieces > 4)                                                                       \
  for (int64_t piece = 0; piece < pieces; piece++) {                                        \
    int64_t at = piece * PIECE;                                                             \
    int count = (int)(n - at < PIECE ? n - at : PIECE);                                     \
    const float *on = log_psi ? log_psi + at * step : 0;                                    \
    const float *off = log_not_psi ? log_not_psi + at * step : 0;                           \
    body                                                                                    \
  }                                                                                         \
  *sum = (add ? *sum : 0.0f) + (float)ordered_sum(parts, pieces);                           \
  free(parts);                                                                              \
  return 0;

EXPORT int slabnet_moments(int add, int64_t n, const float *mu, const float *rho, const float *omega, const float *log_psi,
                           const float *log_not_psi, int step, const float *log_s, float *mean, float *variance,
                           float *sum, int threads) {
  EACH_PIECE({
    if (!omega)
      parts[piece] = moments_piece(count, 0, 0, mu + at, rho + at, 0, 0, 0, *log_s, mean ? mean + at : 0, variance + at);
    else if (step)
      parts[piece] = moments_piece(count, 1, 1, mu + at, rho + at, omega + at, on, off, *log_s, mean + at, variance + at);
    else
      parts[piece] = moments_piece(count, 0, 1, mu + at, rho + at, omega + at, on, off, *log_s, mean + at, variance + at);
  })
}

EXPORT int slabnet_moments_back(int add, int64_t n, const float *mu, const float *rho, const float *omega,
                                const float *log_psi, const float *log_not_psi, int step, const float *log_s,
                                const float *g_mean, const float *g_variance, const float *g_kl, float *d_mu,
                                float *d_rho, float *d_omega, float *sum, int threads) {
#define BACK(STEP, HAS, OMEGA, D)                                                                           \
  moments_back_piece(count, STEP, HAS, mu + at, rho + at, OMEGA, on, off, *log_s, (g_mean ? g_mean + at : 0), g_variance + at, \
                     *g_kl, d_mu + at, d_rho + at, D)
  EACH_PIECE({
    if (!omega) parts[piece] = BACK(0, 0, 0, 0);
    else if (step) parts[piece] = BACK(1, 1, omega + at, d_omega + at);
    else parts[piece] = BACK(0, 1, omega + at, d_omega + at);
  })
}

/* The choices are constants at each call, so that every combination gets a loop of its own. */
#define BY_KIND(CALL)                                                                        \
  if (!omega) { if (kl == EXACT_KL) CALL(0, 0, 0, 1) else CALL(0, 0, 0, 2) }                 \
  else if (step) {                                                                           \
    if (kind == HARD) { if (kl == EXACT_KL) CALL(1, 1, HARD, 1) else CALL(1, 1, HARD, 2) }   \
    else { if (kl == EXACT_KL) CALL(1, 1, RELAXED, 1) else CALL(1, 1, RELAXED, 2) }          \
  } else {                                                                                   \
    if (kind == HARD) { if (kl == EXACT_KL) CALL(0, 1, HARD, 1) else CALL(0, 1, HARD, 2) }   \
    else { if (kl == EXACT_KL) CALL(0, 1, RELAXED, 1) else CALL(0, 1, RELAXED, 2) }          \
  }

EXPORT int slabnet_draw(int add, int64_t n, const float *mu, const float *rho, const float *omega, const float *log_psi,
                        const float *log_not_psi, int step, const float *log_s, const int64_t *seed, float delta,
                        int kind, int kl, float *value, float *kept_eps, float *soft, float *sum, int threads) {
  const uint32_t k0 = (uint32_t)*seed, k1 = (uint32_t)((uint64_t)*seed >> 32);
#define DRAW(STEP, HAS, KIND, KL)                                                                                 \
  {                                                                                                               \
    parts[piece] =                                                                                                \
        delta == 0.5f && !(STEP)                                                                                  \
            ? draw_piece(count, STEP, HAS, KIND, KL, 1, mu + at, rho + at, HAS ? omega + at : 0, on, off, *log_s, \
                         delta, eps, nu, value + at, kept_eps + at, HAS ? soft + at : 0)                          \
            : draw_piece(count, STEP, HAS, KIND, KL, 0, mu + at, rho + at, HAS ? omega + at : 0, on, off, *log_s, \
                         delta, eps, nu, value + at, kept_eps + at, HAS ? soft + at : 0);                         \
  }
  EACH_PIECE({
    float eps[PIECE];
    float nu[PIECE];
    if (omega) noise(at, count, 0, k0, k1, 1, eps, nu); else noise(at, count, 0, k0, k1, 0, eps, nu);
    BY_KIND(DRAW)
  })
}

EXPORT int slabnet_draw_back(int add, int64_t n, const float *mu, const float *rho, const float *omega, const float *log_psi,
                             const float *log_not_psi, int step, const float *log_s, const float *eps,
                             const float *soft, float delta, int kind, int kl, const float *g_value,
                             const float *g_kl, float *d_mu, float *d_rho, float *d_omega, float *sum, int threads) {
#define DRAW_BACK(STEP, HAS, KIND, KL)                                                                            \
  {                                                                                                               \
    parts[piece] = draw_back_piece(count, STEP, HAS, KIND, KL, mu + at, rho + at, HAS ? omega + at : 0, on, off,  \
                                   *log_s, delta, eps + at, HAS ? soft + at : 0, g_value + at, *g_kl, d_mu + at,  \
                                   d_rho + at, HAS ? d_omega + at : 0);                                           \
  }
  EACH_PIECE({ BY_KIND(DRAW_BACK) })
}

/* Normals and uniforms themselves: rows of `units` elements each, the first row numbered `first_row`. */
EXPORT int slabnet_noise(int64_t rows, int64_t units, int64_t first_row, const int64_t *seed, float *eps, float *nu,
                         int threads) {
  const uint32_t k0 = (uint32_t)*seed, k1 = (uint32_t)((uint64_t)*seed >> 32);
  int64_t pieces = (units + PIECE - 1) / PIECE, jobs = rows * pieces;
  THREADS(rows * units > 8192)
  for (int64_t job = 0; job < jobs; job++) {
    int64_t row = job / pieces, at = job % pieces * PIECE;
    int count = (int)(units - at < PIECE ? units - at : PIECE);
    float e[PIECE], u[PIECE];
    if (nu) noise(at, count, (uint32_t)(first_row + row), k0, k1, 1, e, u);
    else noise(at, count, (uint32_t)(first_row + row), k0, k1, 0, e, u);
    memcpy(eps + row * units + at, e, (size_t)count * sizeof(float));
    if (nu) memcpy(nu + row * units + at, u, (size_t)count * sizeof(float));
  }
  return 0;
}

/* The uniforms behind the noise, exact in any type of float: four for each counter of rows of `counters` each. */
EXPORT int slabnet_uniforms(int64_t rows, int64_t counters, int64_t first_row, const int64_t *seed, float *out,
                            int threads) {
  const uint32_t k0 = (uint32_t)*seed, k1 = (uint32_t)((uint64_t)*seed >> 32);
  int64_t blocks = counters / LANES, jobs = rows * blocks;
  THREADS(jobs > 1024)
  for (int64_t job = 0; job < jobs; job++) {
    uint64_t words[4][LANES];
    philox((uint32_t)(job % blocks * LANES), (uint32_t)(first_row + job / blocks), k0, k1, words);
    for (int w = 0; w < 4; w++)
      for (int j = 0; j < LANES; j++) out[(w * rows * blocks + job) * LANES + j] = unit((uint32_t)words[w][j]);
  }
  return 0;
}

INLINE void local_piece(int count, float floor_, const float *RESTRICT b_mean, const float *RESTRICT b_variance,
                        const float *RESTRICT eps, float *RESTRICT mean, float *RESTRICT variance) {
  SIMD
  for (int i = 0; i < count; i++) {
    float v = variance[i] + (b_variance ? b_variance[i] : 0.0f), above = v > floor_ ? v : floor_;
    float sd = sqrtf(above);
    mean[i] += (b_mean ? b_mean[i] : 0.0f) + sd * eps[i];
    variance[i] = v > floor_ ? 0.5f * eps[i] / sd : 0.0f;
  }
}

/* Local reparametrisation in place: mean becomes mean + sqrt(variance) * eps, variance the slope d out / d variance.
   The moments of an intercept (or null) are added to both first. */
EXPORT int slabnet_local(int64_t rows, int64_t units, int64_t first_row, const int64_t *seed, float floor_,
                         const float *b_mean, const float *b_variance, float *mean, float *variance, int threads) {
  const uint32_t k0 = (uint32_t)*seed, k1 = (uint32_t)((uint64_t)*seed >> 32);
  int64_t pieces = (units + PIECE - 1) / PIECE, jobs = rows * pieces;
  THREADS(rows * units > 8192)
  for (int64_t job = 0; job < jobs; job++) {
    int64_t row = job / pieces, at = job % pieces * PIECE, place = row * units + at;
    int count = (int)(units - at < PIECE ? units - at : PIECE);
    float eps[PIECE];
    noise(at, count, (uint32_t)(first_row + row), k0, k1, 0, eps, 0);
    if (b_mean) local_piece(count, floor_, b_mean + at, b_variance + at, eps, mean + place, variance + place);
    else local_piece(count, floor_, 0, 0, eps, mean + place, variance + place);
  }
  return 0;
}

/* Back through it: gradients of both moments of every pre-activation, one after the other, and their sums over rows. */
EXPORT int slabnet_local_back(int64_t rows, int64_t units, const float *RESTRICT given, const float *RESTRICT slope,
                              float *RESTRICT both, float *RESTRICT sums, int threads) {
  float *RESTRICT second = both + rows * units, *RESTRICT sums2 = sums + units;
  const int64_t width = 128, strips = (units + width - 1) / width;   /* a strip of columns keeps its sums in cache */
  THREADS(rows * units > 8192)
  for (int64_t strip = 0; strip < strips; strip++) {
    const int64_t from = strip * width;
    const int count = (int)(units - from < width ? units - from : width);
    float total[128] = {0}, total2[128] = {0};
    for (int64_t row = 0; row < rows; row++) {
      const int64_t at = row * units + from;
      SIMD
      for (int i = 0; i < count; i++) {
        float g = given[at + i], v = g * slope[at + i];
        both[at + i] = g;
        second[at + i] = v;
        total[i] += g;
        total2[i] += v;
      }
    }
    memcpy(sums + from, total, (size_t)count * sizeof(float));
    memcpy(sums2 + from, total2, (size_t)count * sizeof(float));
  }
  (void)threads;
  return 0;
}

/* x and its square, one after the other. */
EXPORT int slabnet_square(int64_t n, const float *RESTRICT x, float *RESTRICT both, int threads) {
  const int64_t pieces = (n + PIECE - 1) / PIECE;
  THREADS(pieces > 8)
  for (int64_t piece = 0; piece < pieces; piece++) {
    const int64_t at = piece * PIECE, end = at + PIECE < n ? at + PIECE : n;
    SIMD
    for (int64_t i = at; i < end; i++) {
      both[i] = x[i];
      both[n + i] = x[i] * x[i];
    }
  }
  (void)threads;
  return 0;
}

/* Everything a linear layer under local reparametrisation needs before its products: moments of weight and intercept
   (b_mu may be null), their divergence, and the inputs with their squares. One call instead of three. */
EXPORT int slabnet_linear(int64_t n, const float *mu, const float *rho, const float *omega, const float *log_psi,
                          const float *log_not_psi, int step, int64_t units, const float *b_mu, const float *b_rho,
                          const float *b_omega, const float *b_log_psi, const float *b_log_not_psi, int b_step,
                          const float *log_s, float *both, float *intercept, float *kl, int64_t inputs,
                          const float *x, float *squares, int threads) {
  int failed = slabnet_moments(0, n, mu, rho, omega, log_psi, log_not_psi, step, log_s, both, both + n, kl, threads);
  if (b_mu)
    failed |= slabnet_moments(1, units, b_mu, b_rho, b_omega, b_log_psi, b_log_not_psi, b_step, log_s, intercept,
                              intercept + units, kl, threads);
  return failed | slabnet_square(inputs, x, squares, threads);
}

EXPORT int slabnet_linear_back(int64_t n, const float *mu, const float *rho, const float *omega, const float *log_psi,
                               const float *log_not_psi, int step, int64_t units, const float *b_mu,
                               const float *b_rho, const float *b_omega, const float *b_log_psi,
                               const float *b_log_not_psi, int b_step, const float *log_s, const float *g_both,
                               const float *g_sums, const float *g_kl, float *d_mu, float *d_rho, float *d_omega,
                               float *d_b_mu, float *d_b_rho, float *d_b_omega, float *d_s, int threads) {
  int failed = slabnet_moments_back(0, n, mu, rho, omega, log_psi, log_not_psi, step, log_s, g_both, g_both + n, g_kl,
                                    d_mu, d_rho, d_omega, d_s, threads);
  if (b_mu)
    failed |= slabnet_moments_back(1, units, b_mu, b_rho, b_omega, b_log_psi, b_log_not_psi, b_step, log_s, g_sums,
                                   g_sums + units, g_kl, d_b_mu, d_b_rho, d_b_omega, d_s, threads);
  return failed;
}
