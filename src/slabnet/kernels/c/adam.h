/* Adam, alone and in one pass with the gradient of a block. The last part of kernels.c, whose loops it uses. */

/* ---- Adam ---- */

INLINE void adam_piece(int count, float *RESTRICT p, const float *RESTRICT g, float *RESTRICT m, float *RESTRICT v,
                       float beta1, float beta2, float eps, float rate, float root) {
  SIMD
  for (int i = 0; i < count; i++) {
    float grad = g[i];
    float first = beta1 * m[i] + (1.0f - beta1) * grad, second = beta2 * v[i] + (1.0f - beta2) * grad * grad;
    m[i] = first;
    v[i] = second;
    p[i] -= rate * first / (sqrtf(second) * root + eps);
  }
}

/* One step of Adam for many tensors at once. rate = lr / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t).
   pieces: (tensor, place) of each piece of at most PIECE numbers. */
EXPORT int slabnet_adam(int64_t count, const int64_t *pieces, const int64_t *sizes, float *const *p, float *const *g,
                        float *const *m, float *const *v, const float *rates, float root, float beta1, float beta2,
                        float eps, int threads) {
  THREADS(count > FEW_PIECES)
  for (int64_t piece = 0; piece < count; piece++) {
    int64_t k = pieces[2 * piece], at = pieces[2 * piece + 1];
    int n = (int)(sizes[k] - at < PIECE ? sizes[k] - at : PIECE);
    adam_piece(n, p[k] + at, g[k] + at, m[k] + at, v[k] + at, beta1, beta2, eps, rates[k], root);
  }
  (void)threads;
  return 0;
}

/* ---- the gradient of a block and the step of Adam that it is for, in one pass: the gradient is never written ---- */

typedef struct { float *m, *v; float rate; } Memory;  /* of one parameter: Adam's two moments, and its step size */

/* What is needed next, on its way while something else is computed: nine arrays are more than a processor follows. A few
   at a time, or they wait for each other. */
INLINE void ahead(int count, const float *next) {
  for (int i = 0; i < count; i += 16) PREFETCH(next + i);
}

INLINE void adam_block(int count, int64_t at, int64_t next, float *mu, float *rho, float *omega, const float *d_mu, const float *d_rho,
                       const float *d_omega, const Memory *memory, float root, float beta1, float beta2, float eps) {
  ahead(count, mu + next);
  ahead(count, memory[0].m + next);
  ahead(count, memory[0].v + next);
  adam_piece(count, mu + at, d_mu, memory[0].m + at, memory[0].v + at, beta1, beta2, eps, memory[0].rate, root);
  ahead(count, rho + next);
  ahead(count, memory[1].m + next);
  ahead(count, memory[1].v + next);
  adam_piece(count, rho + at, d_rho, memory[1].m + at, memory[1].v + at, beta1, beta2, eps, memory[1].rate, root);
  if (omega) {
    ahead(count, omega + next);
    ahead(count, memory[2].m + next);
    ahead(count, memory[2].v + next);
    adam_piece(count, omega + at, d_omega, memory[2].m + at, memory[2].v + at, beta1, beta2, eps, memory[2].rate, root);
  }
}

EXPORT int slabnet_moments_step(int64_t n, float *mu, float *rho, float *omega, const float *log_psi,
                                const float *log_not_psi, int step, const float *log_s, const float *g_mean,
                                const float *g_variance, const float *g_kl, float *m0, float *v0, float *m1, float *v1,
                                float *m2, float *v2, float rate, float omega_rate, float root, float beta1, float beta2,
                                float eps, int threads) {
  const Memory memory[3] = {{m0, v0, rate}, {m1, v1, rate}, {m2, v2, omega_rate}};
  int add = 0;
  float unused, *sum = &unused;
  EACH_PIECE({
    float d_mu[PIECE];
    float d_rho[PIECE];
    float d_omega[PIECE];
    const float *gm = g_mean ? g_mean + at : 0;
    const float *gv = g_variance + at;
    const int64_t next = at + 2 * PIECE <= n ? at + PIECE : at;
    moments_back_any(count, step, mu + at, rho + at, omega ? omega + at : 0, on, off, *log_s, gm, gv, *g_kl, d_mu, d_rho,
                     d_omega);
    adam_block(count, at, next, mu, rho, omega, d_mu, d_rho, d_omega, memory, root, beta1, beta2, eps);
  })
}

EXPORT int slabnet_draw_step(int64_t n, float *mu, float *rho, float *omega, const float *log_psi,
                             const float *log_not_psi, int step, const float *log_s, const float *eps_drawn,
                             const float *soft, float delta, int kind, int kl, const float *g_value, const float *g_kl,
                             float *m0, float *v0, float *m1, float *v1, float *m2, float *v2, float rate,
                             float omega_rate, float root, float beta1, float beta2, float eps, int threads) {
  const Memory memory[3] = {{m0, v0, rate}, {m1, v1, rate}, {m2, v2, omega_rate}};
  int add = 0;
  float unused, *sum = &unused;
#define DRAW_STEP(STEP, HAS, KIND, KL)                                                                            \
  {                                                                                                               \
    draw_back_piece(count, STEP, HAS, KIND, KL, mu + at, rho + at, HAS ? omega + at : 0, on, off, *log_s, delta,  \
                    eps_drawn + at, HAS ? soft + at : 0, g_value + at, *g_kl, d_mu, d_rho, d_omega);              \
  }
  EACH_PIECE({
    float d_mu[PIECE];
    float d_rho[PIECE];
    float d_omega[PIECE];
    const int64_t next = at + 2 * PIECE <= n ? at + PIECE : at;
    BY_KIND(DRAW_STEP)
    adam_block(count, at, next, mu, rho, omega, d_mu, d_rho, d_omega, memory, root, beta1, beta2, eps);
  })
}
