/* The passes over the weights of a training step, one loop per direction.

   Readable versions in torch, which these must equal: reference.py (formulas) and philox.py (random numbers).
   Plain C on data pointers: compiled once per instruction set, chosen when loaded (native.py).
   Loops vectorise because pointers are restrict arguments and exp, log, sin and cos are inline polynomials.
   Sums are taken over pieces of fixed length and added in order: the number of threads changes nothing. */

#include "elementary.h"

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
  Stages s;
  stages(count, has_omega, 0, omega, rho, &s);
  SIMD_SUM(sum)
  for (int i = 0; i < count; i++) {
    float m = mu[i], o = has_omega ? omega[i] : 0.0f;
    Weight w = weight_at(&s, i, o, rho[i], has_omega, 0);
    float slab = kl_slab(m, w, precision, log_s), s2 = w.sigma * w.sigma;
    if (has_omega) {
      mean[i] = w.alpha * m;
      variance[i] = w.alpha * (s2 + w.not_alpha * m * m);
      float on = w.log_alpha - log_psi[i * step] + slab, off = w.log_alpha - o - log_not_psi[i * step];
      sum += w.alpha * on + w.not_alpha * off;
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
  Stages s;
  stages(count, has_omega, 1, omega, rho, &s);
  SIMD_SUM(sum)
  for (int i = 0; i < count; i++) {
    float m = mu[i], gm = g_mean ? g_mean[i] : 0.0f, gv = g_variance[i], o = has_omega ? omega[i] : 0.0f;
    Weight w = weight_at(&s, i, o, rho[i], has_omega, 1);
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

/* Without omega, with a prior for each weight, with one for all: constants at each call, so that each has its own loop. */
INLINE float moments_back_any(int count, int step, const float *mu, const float *rho, const float *omega,
                              const float *log_psi, const float *log_not_psi, float log_s, const float *g_mean,
                              const float *g_variance, float g_kl, float *d_mu, float *d_rho, float *d_omega) {
#define BACK(STEP, HAS)                                                                                               \
  moments_back_piece(count, STEP, HAS, mu, rho, omega, log_psi, log_not_psi, log_s, g_mean, g_variance, g_kl, d_mu, d_rho, \
                     d_omega)
  return !omega ? BACK(0, 0) : step ? BACK(1, 1) : BACK(0, 1);
}

/* ---- what Python calls. `add`: to what is in `sum` already. Missing omega: every weight is in.
   Pieces are cut the same for any number of threads. ---- */

#define EACH_PIECE(body)                                                                    \
  int64_t pieces = (n + PIECE - 1) / PIECE;                                                 \
  float *parts = (float *)calloc((size_t)pieces + 1, sizeof(float));                        \
  if (!parts) return 1;                                                                     \
  THREADS(pieces > FEW_PIECES)                                                              \
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
  EACH_PIECE({
    parts[piece] = moments_back_any(count, step, mu + at, rho + at, omega ? omega + at : 0, on, off, *log_s,
                                    g_mean ? g_mean + at : 0, g_variance + at, *g_kl, d_mu + at, d_rho + at,
                                    d_omega ? d_omega + at : 0);
  })
}

/* Normals and uniforms themselves: rows of `units` elements each, the first row numbered `first_row`; `places` (or null)
   says where in its row each element lies. */
EXPORT int slabnet_noise(int64_t rows, int64_t units, int64_t first_row, const int64_t *seed, const int64_t *places,
                         float *eps, float *nu, int threads) {
  const uint32_t k0 = (uint32_t)*seed, k1 = (uint32_t)((uint64_t)*seed >> 32);
  int64_t pieces = (units + PIECE - 1) / PIECE, jobs = rows * pieces;
  THREADS(rows * units > FEW_NUMBERS)
  for (int64_t job = 0; job < jobs; job++) {
    int64_t row = job / pieces, at = job % pieces * PIECE;
    int count = (int)(units - at < PIECE ? units - at : PIECE);
    float e[PIECE], u[PIECE];
    if (places) noise_at(places + at, count, (uint32_t)(first_row + row), k0, k1, 1, e, u);
    else if (nu) noise(at, count, (uint32_t)(first_row + row), k0, k1, 1, e, u);
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
EXPORT int slabnet_local(int64_t rows, int64_t units, int64_t first_row, const int64_t *seed, const int64_t *places,
                         float floor_, const float *b_mean, const float *b_variance, float *mean, float *variance, int threads) {
  const uint32_t k0 = (uint32_t)*seed, k1 = (uint32_t)((uint64_t)*seed >> 32);
  int64_t pieces = (units + PIECE - 1) / PIECE, jobs = rows * pieces;
  THREADS(rows * units > FEW_NUMBERS)
  for (int64_t job = 0; job < jobs; job++) {
    int64_t row = job / pieces, at = job % pieces * PIECE, place = row * units + at;
    int count = (int)(units - at < PIECE ? units - at : PIECE);
    float eps[PIECE];
    if (places) noise_at(places + at, count, (uint32_t)(first_row + row), k0, k1, 0, eps, 0);
    else noise(at, count, (uint32_t)(first_row + row), k0, k1, 0, eps, 0);
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
  THREADS(rows * units > FEW_NUMBERS)
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
  THREADS(pieces > 2 * FEW_PIECES)
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

/* The sources this was compiled from, as kernels/sources.py counts them; "" where nobody said. */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#ifndef SLABNET_SOURCES
#define SLABNET_SOURCES
#endif
EXPORT const char *slabnet_sources(void) { return TEXT(SLABNET_SOURCES); }

#include "draws.h"
#include "adam.h"
#include "mixture.h"
#include "products.h"
#include "sparse.h"
#include "meeting.h"
#include "pages.h"
