/* A chain of sparse linear layers and activations, from the inputs to the outputs, in one call.

   The torch version is reference.chain. Rows go in strips of STRIP, features before rows, so that one weight meets
   STRIP rows at once in registers; a row alone is a sparse product of its own. */

enum { STRIP = 64, HEAD = 4, FIELDS = 9 };
enum { NO_MEMORY = 1, MISFIT = 2 };                    /* what a pass returns when it was not made */
enum { IDENTITY, RELU, LEAKY_RELU, TANH, SIGMOID, SOFTPLUS, GELU, SILU, ELU, GELU_TANH };

/* What Python lays out as int64: HEAD numbers, then FIELDS for each layer. Addresses are numbers too. */
typedef struct { int64_t inputs, reads, layers, widest; } Model;
typedef struct { int64_t units, inputs, count, activation, starts, columns, values, intercepts, options; } Layer;

/* A build with SLABNET_CHECKED looks at every position before it is used; the others trust what Python has checked. */
#ifdef SLABNET_CHECKED
static int positions_fit(int64_t count, const int32_t *positions, int64_t size) {
  for (int64_t i = 0; i < count; i++)
    if (positions[i] < 0 || positions[i] >= size) return 0;
  return 1;
}

static int rows_fit(int64_t units, int64_t inputs, int64_t count, const int32_t *starts, const int32_t *columns) {
  if (units < 0 || starts[0] != 0 || starts[units] != count) return 0;
  for (int64_t unit = 0; unit < units; unit++)
    if (starts[unit] > starts[unit + 1]) return 0;
  return positions_fit(count, columns, inputs);
}

static int chain_fits(const Model *model, const Layer *layers, int64_t width, int64_t outputs) {
  int64_t before = model->inputs;
  if (model->layers < 1 || before > model->widest) return 0;
  if (!positions_fit(before, (const int32_t *)model->reads, width)) return 0;
  for (int64_t l = 0; l < model->layers; l++) {
    const Layer *layer = layers + l;
    if (layer->inputs != before || layer->units > model->widest) return 0;
    if (!rows_fit(layer->units, before, layer->count, (const int32_t *)layer->starts, (const int32_t *)layer->columns))
      return 0;
    before = layer->units;
  }
  return before == outputs;
}
#define CHECK(condition) if (!(condition)) return MISFIT
#else
#define CHECK(condition)
#endif

INLINE float activate(float x, int64_t kind, const float *options) {
  switch (kind) {
    case RELU: return x < 0 ? 0.0f : x;               /* a NaN stays one */
    case LEAKY_RELU: return x < 0 ? x * options[0] : x;
    case TANH: return tanhf(x);
    case SIGMOID: return 1.0f / (1.0f + expf(-x));
    case SOFTPLUS: return x * options[0] > options[1] ? x : log1pf(expf(x * options[0])) / options[0];
    case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case SILU: return x / (1.0f + expf(-x));
    case ELU: return x > 0 ? x : options[0] * expm1f(x);
    case GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    default: return x;
  }
}

INLINE void activate_all(float *RESTRICT values, int64_t count, int64_t kind, const float *options) {
  if (kind == IDENTITY) return;
  if (kind == RELU) {                                 /* the usual one, in a loop that vectorises */
    SIMD
    for (int64_t i = 0; i < count; i++) values[i] = values[i] < 0 ? 0.0f : values[i];
    return;
  }
  for (int64_t i = 0; i < count; i++) values[i] = activate(values[i], kind, options);
}

INLINE void sparse_strip(const Layer *layer, const float *RESTRICT from, float *RESTRICT to) {
  const int32_t *starts = (const int32_t *)layer->starts, *columns = (const int32_t *)layer->columns;
  const float *values = (const float *)layer->values, *intercepts = (const float *)layer->intercepts;
  for (int64_t unit = 0; unit < layer->units; unit++) {
    float sum[STRIP];
    const float own = intercepts ? intercepts[unit] : 0.0f;
    for (int r = 0; r < STRIP; r++) sum[r] = own;
    for (int32_t k = starts[unit]; k < starts[unit + 1]; k++) {
      const float weight = values[k], *RESTRICT x = from + (int64_t)columns[k] * STRIP;
      SIMD
      for (int r = 0; r < STRIP; r++) sum[r] += weight * x[r];
    }
    memcpy(to + unit * STRIP, sum, sizeof sum);
  }
  activate_all(to, layer->units * STRIP, layer->activation, (const float *)layer->options);
}

INLINE void sparse_row(const Layer *layer, const float *RESTRICT from, float *RESTRICT to) {
  const int32_t *starts = (const int32_t *)layer->starts, *columns = (const int32_t *)layer->columns;
  const float *values = (const float *)layer->values, *intercepts = (const float *)layer->intercepts;
  for (int64_t unit = 0; unit < layer->units; unit++) {
    float sum = intercepts ? intercepts[unit] : 0.0f;
    for (int32_t k = starts[unit]; k < starts[unit + 1]; k++) sum += values[k] * from[columns[k]];
    to[unit] = sum;
  }
  activate_all(to, layer->units, layer->activation, (const float *)layer->options);
}

/* `rows` rows of x of `width` numbers, `stride` apart; `reads`: which of them are inputs. Each has `outputs` in out. */
EXPORT int slabnet_chain(int64_t rows, const float *x, int64_t width, int64_t stride, const int64_t *described,
                         int64_t outputs, float *out, int threads) {
  const Model *model = (const Model *)described;
  const Layer *layers = (const Layer *)(described + HEAD);
  CHECK(chain_fits(model, layers, width, outputs));
  const int32_t *reads = (const int32_t *)model->reads;
  const int64_t widest = model->widest;
  const int64_t alone = rows < STRIP / 8 ? rows : 0, strips = alone ? 0 : (rows + STRIP - 1) / STRIP;
  int failed = 0;
  if (alone) {
    float *both = (float *)malloc((size_t)(2 * widest) * sizeof(float));
    if (!both) return NO_MEMORY;
    for (int64_t row = 0; row < rows; row++) {
      float *from = both, *to = both + widest;
      const float *given = x + row * stride;
      for (int64_t j = 0; j < model->inputs; j++) from[j] = given[reads[j]];
      for (int64_t l = 0; l < model->layers; l++) {
        sparse_row(layers + l, from, to);
        float *other = from;
        from = to, to = other;
      }
      memcpy(out + row * outputs, from, (size_t)outputs * sizeof(float));
    }
    free(both);
    return 0;
  }
  THREADS(strips > 4)
  for (int64_t strip = 0; strip < strips; strip++) {
    const int64_t first = strip * STRIP;
    const int count = (int)(rows - first < STRIP ? rows - first : STRIP);
    float *both = (float *)malloc((size_t)(2 * widest * STRIP) * sizeof(float));
    if (!both) { failed = NO_MEMORY; continue; }
    float *from = both, *to = both + widest * STRIP;
    const float *given = x + first * stride;
    for (int64_t j = 0; j < model->inputs; j++) {
      const float *column = given + reads[j];
      for (int r = 0; r < count; r++) from[j * STRIP + r] = column[r * stride];
      for (int r = count; r < STRIP; r++) from[j * STRIP + r] = 0.0f;
    }
    for (int64_t l = 0; l < model->layers; l++) {
      sparse_strip(layers + l, from, to);
      float *other = from;
      from = to, to = other;
    }
    for (int r = 0; r < count; r++)
      for (int64_t unit = 0; unit < outputs; unit++) out[(first + r) * outputs + unit] = from[unit * STRIP + r];
    free(both);
  }
  (void)threads;
  (void)width;
  return failed;
}

/* Some columns of x, those of all rows side by side. */
EXPORT int slabnet_take(int64_t rows, const float *x, int64_t width, int64_t stride, int64_t count, const int32_t *reads,
                        float *out, int threads) {
  CHECK(positions_fit(count, reads, width));
  const int64_t strips = (rows + STRIP - 1) / STRIP;
  THREADS(rows * count > 200000)
  for (int64_t strip = 0; strip < strips; strip++) {
    const int64_t first = strip * STRIP, end = first + STRIP < rows ? first + STRIP : rows;
    for (int64_t j = 0; j < count; j++)
      for (int64_t r = first; r < end; r++) out[j * rows + r] = x[r * stride + reads[j]];
  }
  (void)threads;
  (void)width;
  return 0;
}

/* ---- a sparse layer under local reparametrisation. Numbers lie feature by feature: those of all rows side by side. ---- */

typedef struct {
  int64_t rows, units, inputs, count;
  const int32_t *starts, *columns;
  const float *mean, *variance;                       /* of each weight that is left */
  int64_t own;                                        /* how many units have an intercept, and which */
  const int32_t *own_units;
} Sparse;

#ifdef SLABNET_CHECKED
static int sparse_fits(const Sparse *layer) {
  return rows_fit(layer->units, layer->inputs, layer->count, layer->starts, layer->columns) &&
         positions_fit(layer->own, layer->own_units, layer->units);
}
#endif

/* Both moments of every pre-activation of one unit. */
INLINE void unit_moments(const Sparse *layer, int64_t unit, const float *x, int64_t step, const float *own,
                         float *RESTRICT mean, float *RESTRICT variance) {
  for (int64_t at = 0; at < layer->rows; at += STRIP) {
    const int count = (int)(layer->rows - at < STRIP ? layer->rows - at : STRIP);
    float m[STRIP], v[STRIP];
    for (int r = 0; r < STRIP; r++) {
      m[r] = own[unit];
      v[r] = own[layer->units + unit];
    }
    for (int32_t k = layer->starts[unit]; k < layer->starts[unit + 1]; k++) {
      const float *RESTRICT from = x + layer->columns[k] * step + at;
      const float a = layer->mean[k], b = layer->variance[k];
      SIMD
      for (int r = 0; r < count; r++) {
        m[r] += a * from[r];
        v[r] += b * (from[r] * from[r]);
      }
    }
    memcpy(mean + at, m, (size_t)count * sizeof(float));
    memcpy(variance + at, v, (size_t)count * sizeof(float));
  }
}

/* out: mean + sqrt(variance) * eps of every pre-activation; slope: d out / d variance. `places`: of the units, for noise. */
EXPORT int slabnet_sparse_local(const int64_t *described, const float *x, int64_t step, const float *b_mean,
                                const float *b_variance, int64_t first_row, const int64_t *seed,
                                const int64_t *places, float floor_, float *out, float *slope, int threads) {
  const Sparse *layer = (const Sparse *)described;
  CHECK(sparse_fits(layer));
  const uint32_t k0 = (uint32_t)*seed, k1 = (uint32_t)((uint64_t)*seed >> 32);
  const int64_t rows = layer->rows, units = layer->units;
  const int many = rows * (layer->starts[units] + 8 * units) > 200000;
  int failed = 0;
  float *own = (float *)calloc((size_t)(2 * units) + 1, sizeof(float));   /* moments of the intercept of every unit */
  if (!own) return NO_MEMORY;
  for (int64_t i = 0; i < layer->own; i++) {
    own[layer->own_units[i]] = b_mean[i];
    own[units + layer->own_units[i]] = b_variance[i];
  }
  THREADS(many)
  for (int64_t unit = 0; unit < units; unit++)
    unit_moments(layer, unit, x, step, own, out + unit * rows, slope + unit * rows);
  free(own);
  THREADS(many)
  for (int64_t row = 0; row < rows; row++) {
    float *eps = (float *)malloc((size_t)units * sizeof(float) + 4);
    if (!eps) { failed = NO_MEMORY; continue; }
    noise_at(places, (int)units, (uint32_t)(first_row + row), k0, k1, 0, eps, 0);
    for (int64_t unit = 0; unit < units; unit++) {
      const int64_t at = unit * rows + row;
      const float v = slope[at], sd = sqrtf(v > floor_ ? v : floor_);
      out[at] += sd * eps[unit];
      slope[at] = v > floor_ ? 0.5f * eps[unit] / sd : 0.0f;
    }
    free(eps);
  }
  (void)threads;
  return failed;
}

/* Back through it: gradients of the moments of every weight and intercept, and of x (or null). `pair`: units x rows
   to work in. */
EXPORT int slabnet_sparse_local_back(const int64_t *described, const float *x, int64_t step, const float *given,
                                     int64_t given_step, const float *slope, float *pair, float *d_mean,
                                     float *d_variance, float *d_b_mean, float *d_b_variance, float *d_x,
                                     int threads) {
  const Sparse *layer = (const Sparse *)described;
  CHECK(sparse_fits(layer));
  const int64_t rows = layer->rows, units = layer->units, strips = (rows + STRIP - 1) / STRIP;
  const int many = rows * layer->starts[units] > 200000;
  float *sums = (float *)calloc((size_t)(2 * units) + 1, sizeof(float));
  if (!sums) return NO_MEMORY;
  THREADS(many)
  for (int64_t unit = 0; unit < units; unit++) {
    const float *RESTRICT g = given + unit * given_step, *RESTRICT turn = slope + unit * rows;
    float *RESTRICT second = pair + unit * rows;
    float total = 0, total2 = 0;
    SIMD_SUM(total, total2)
    for (int64_t r = 0; r < rows; r++) {
      const float v = g[r] * turn[r];
      second[r] = v;
      total += g[r];
      total2 += v;
    }
    sums[unit] = total;
    sums[units + unit] = total2;
    for (int32_t k = layer->starts[unit]; k < layer->starts[unit + 1]; k++) {
      const float *RESTRICT from = x + layer->columns[k] * step;
      float m = 0, v = 0;
      SIMD_SUM(m, v)
      for (int64_t r = 0; r < rows; r++) {
        m += g[r] * from[r];
        v += second[r] * (from[r] * from[r]);
      }
      d_mean[k] = m;
      d_variance[k] = v;
    }
  }
  for (int64_t i = 0; i < layer->own; i++) {
    d_b_mean[i] = sums[layer->own_units[i]];
    d_b_variance[i] = sums[units + layer->own_units[i]];
  }
  free(sums);
  if (!d_x) return 0;
  THREADS(many)
  for (int64_t strip = 0; strip < strips; strip++) {
    const int64_t at = strip * STRIP;
    const int count = (int)(rows - at < STRIP ? rows - at : STRIP);
    for (int64_t j = 0; j < layer->inputs; j++) memset(d_x + j * rows + at, 0, (size_t)count * sizeof(float));
    for (int64_t unit = 0; unit < units; unit++) {
      const float *RESTRICT g = given + unit * given_step + at, *RESTRICT second = pair + unit * rows + at;
      for (int32_t k = layer->starts[unit]; k < layer->starts[unit + 1]; k++) {
        const float *RESTRICT from = x + layer->columns[k] * step + at;
        const float a = layer->mean[k], b = 2 * layer->variance[k];
        float *RESTRICT to = d_x + layer->columns[k] * rows + at;
        SIMD
        for (int r = 0; r < count; r++) to[r] += g[r] * a + second[r] * b * from[r];
      }
    }
  }
  (void)threads;
  return 0;
}
