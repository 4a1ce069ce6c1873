/* The step of a linear layer under local reparametrisation, from what its gradient is a product of. Included by kernels.c.

   The gradients of means and variances are sums over rows, as large as the weights: written and read again they are six
   of some thirty passes over memory of a step. Here a few units' are made at a time, and used while they are in cache.
   Each is summed over rows in order, whatever the number of threads. */

#if defined(_MSC_VER)
enum { VEC = 1, TILE_UNITS = 4, TILE_VECS = 4 };
typedef float Vec;
#else
#if defined(__AVX512F__)
enum { VEC = 16, TILE_UNITS = 8, TILE_VECS = 2 };   /* as many sums as registers hold beside the inputs */
#elif defined(__AVX2__)
enum { VEC = 8, TILE_UNITS = 6, TILE_VECS = 2 };
#else
enum { VEC = 4, TILE_UNITS = 6, TILE_VECS = 2 };
#endif
typedef float Vec __attribute__((vector_size(VEC * sizeof(float)), aligned(sizeof(float)), may_alias));
#endif
enum { TILE = VEC * TILE_VECS, SPAN = PIECE / TILE * TILE };   /* a row of inputs that is made at a time */

/* rows x `width` columns from `at` on, side by side, zeros beyond the last one */
INLINE void pack(int64_t rows, int64_t columns, int64_t at, int width, const float *RESTRICT from, float *RESTRICT to) {
  const int64_t left = columns - at, count = left < width ? left : width;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < count; i++) to[r * width + i] = from[r * columns + at + i];
    for (int64_t i = count; i < width; i++) to[r * width + i] = 0.0f;
  }
}

/* out[u][i] = sum over rows of g[row][u] * x[row][i] */
INLINE void product_tile(int64_t rows, const float *RESTRICT g, const float *RESTRICT x, float *RESTRICT out) {
  Vec sums[TILE_UNITS][TILE_VECS];
  memset(sums, 0, sizeof sums);
  for (int64_t r = 0; r < rows; r++) {
    const Vec *inputs = (const Vec *)(x + r * TILE);
    for (int u = 0; u < TILE_UNITS; u++)
      for (int v = 0; v < TILE_VECS; v++) sums[u][v] += g[r * TILE_UNITS + u] * inputs[v];
  }
  for (int u = 0; u < TILE_UNITS; u++)
    for (int v = 0; v < TILE_VECS; v++) *(Vec *)(out + u * SPAN + v * VEC) = sums[u][v];
}

/* slabnet_moments_step of a weight (units x inputs) whose g_mean and g_variance are pair[k]^T squares[k], k = 0 and 1. */
EXPORT int slabnet_products_step(int64_t rows, int64_t units, int64_t inputs, float *mu, float *rho, float *omega,
                                 const float *log_psi, const float *log_not_psi, int step, const float *log_s,
                                 const float *pair, const float *squares, const float *g_kl, float *m0, float *v0,
                                 float *m1, float *v1, float *m2, float *v2, float rate, float omega_rate, float root,
                                 float beta1, float beta2, float eps, int threads) {
  const Memory memory[3] = {{m0, v0, rate}, {m1, v1, rate}, {m2, v2, omega_rate}};
  const int64_t unit_tiles = (units + TILE_UNITS - 1) / TILE_UNITS, input_tiles = (inputs + TILE - 1) / TILE;
  const int many = rows * units * inputs > FEW_PRODUCTS;
  const int64_t g_size = rows * TILE_UNITS, x_size = rows * TILE;
  float *g = (float *)malloc((size_t)(2 * unit_tiles * g_size) * sizeof(float));
  float *x = (float *)malloc((size_t)(2 * input_tiles * x_size) * sizeof(float));
  if (!g || !x) { free(g); free(x); return 1; }
  THREADS(many)
  for (int64_t tile = 0; tile < unit_tiles + input_tiles; tile++)
    for (int k = 0; k < 2; k++) {
      const int64_t t = tile - unit_tiles;
      if (t < 0) pack(rows, units, tile * TILE_UNITS, TILE_UNITS, pair + k * rows * units, g + (2 * tile + k) * g_size);
      else pack(rows, inputs, t * TILE, TILE, squares + k * rows * inputs, x + (2 * t + k) * x_size);
    }
  THREADS(many)
  for (int64_t tile = 0; tile < unit_tiles; tile++) {
    float made[2][TILE_UNITS * SPAN], d_mu[SPAN], d_rho[SPAN], d_omega[SPAN];
    const int64_t unit = tile * TILE_UNITS, last = unit + TILE_UNITS < units ? unit + TILE_UNITS : units;
    for (int64_t from = 0; from < inputs; from += SPAN) {
      const int count = (int)(inputs - from < SPAN ? inputs - from : SPAN);
      for (int i = 0; i < count; i += TILE)
        for (int k = 0; k < 2; k++)
          product_tile(rows, g + (2 * tile + k) * g_size, x + (2 * ((from + i) / TILE) + k) * x_size, made[k] + i);
      for (int64_t u = unit; u < last; u++) {
        const int64_t at = u * inputs + from;
        const float *gm = made[0] + (u - unit) * SPAN, *gv = made[1] + (u - unit) * SPAN;
        const float *on = log_psi ? log_psi + at * step : 0, *off = log_not_psi ? log_not_psi + at * step : 0;
        const int64_t next = u + 1 < units ? at + inputs : at;
        moments_back_any(count, step, mu + at, rho + at, omega ? omega + at : 0, on, off, *log_s, gm, gv, *g_kl, d_mu,
                         d_rho, d_omega);
        adam_block(count, at, next, mu, rho, omega, d_mu, d_rho, d_omega, memory, root, beta1, beta2, eps);
      }
    }
  }
  free(g);
  free(x);
  return 0;
}
