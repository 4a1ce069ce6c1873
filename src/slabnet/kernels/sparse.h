/* A chain of sparse linear layers and activations, from the inputs to the outputs, in one call.

   The torch version is reference.chain. Rows go in strips of STRIP, features before rows, so that one weight meets
   STRIP rows at once in registers; a row alone is a sparse product of its own. */

enum { STRIP = 64, HEAD = 4, FIELDS = 7 };
enum { IDENTITY, RELU, LEAKY_RELU, TANH, SIGMOID, SOFTPLUS, GELU, SILU, ELU, GELU_TANH };

/* What Python lays out as int64: HEAD numbers, then FIELDS for each layer. Addresses are numbers too. */
typedef struct { int64_t inputs, reads, layers, widest; } Model;
typedef struct { int64_t units, activation, starts, columns, values, intercepts, options; } Layer;

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

/* `rows` rows of x, `stride` numbers apart; `reads`: which of them are inputs. Returns 1 where memory ran out. */
EXPORT int slabnet_chain(int64_t rows, const float *x, int64_t stride, const int64_t *described, float *out,
                         int threads) {
  const Model *model = (const Model *)described;
  const Layer *layers = (const Layer *)(described + HEAD);
  const int32_t *reads = (const int32_t *)model->reads;
  const int64_t outputs = layers[model->layers - 1].units, widest = model->widest;
  const int64_t alone = rows < STRIP / 8 ? rows : 0, strips = alone ? 0 : (rows + STRIP - 1) / STRIP;
  int failed = 0;
  if (alone) {
    float *both = (float *)malloc((size_t)(2 * widest) * sizeof(float));
    if (!both) return 1;
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
    if (!both) { failed = 1; continue; }
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
  return failed;
}
