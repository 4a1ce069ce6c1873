/* Draws: the value of every weight, and the divergence in closed form or at the draw. Included by kernels.c. */

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
    float sign = omega >= 0 ? 1.0f : -1.0f, a = 0.5f + sign * (nu - 0.5f), b = 1.0f - a;   /* nu or 1 - nu, both exact */
    float against = tail_ * a * (tail_ * a), in_favour = b * b, less = against < in_favour ? against : in_favour;
    small = less / (against + in_favour);
    side = sign * (in_favour - against);
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
  Stages s;
  stages(count, has_omega, 0, omega, rho, &s);
  if (has_omega) {
    SIMD
    for (int i = 0; i < count; i++) soft[i] = signed_gamma(omega[i], s.e_omega[i], nu[i], sharp, halves);
  }
  SIMD_SUM(sum)
  for (int i = 0; i < count; i++) {
    float m = mu[i], e = eps[i], o = has_omega ? omega[i] : 0.0f;
    Weight w = weight_at(&s, i, o, rho[i], has_omega, 0);
    float beta = m + w.sigma * e, gamma = 1.0f;
    kept_eps[i] = e;
    if (has_omega) {
      float side = soft[i];
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
  Stages s;
  stages(count, has_omega, 1, omega, rho, &s);
  SIMD_SUM(sum)
  for (int i = 0; i < count; i++) {
    float m = mu[i], g = g_value[i], e = eps[i], o = has_omega ? omega[i] : 0.0f;
    Weight w = weight_at(&s, i, o, rho[i], has_omega, 1);
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
                        const float *log_not_psi, int step, const float *log_s, const int64_t *seed,
                        const int64_t *places, float delta, int kind, int kl, float *value, float *kept_eps, float *soft, float *sum, int threads) {
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
    if (places) noise_at(places + at, count, 0, k0, k1, 1, eps, nu);
    else if (omega) noise(at, count, 0, k0, k1, 1, eps, nu);
    else noise(at, count, 0, k0, k1, 0, eps, nu);
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
