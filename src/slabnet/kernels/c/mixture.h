/* What a narrow Gaussian adds to the log density of a wide one, at drawn weights. Included by kernels.c. */

INLINE float bump_piece(int count, float log_height, float curvature, const float *RESTRICT beta,
                        float *RESTRICT slope) {
  float sum = 0;
  SIMD_SUM(sum)
  for (int i = 0; i < count; i++) {
    float b = beta[i], x = log_height - 0.5f * curvature * b * b, e = tail(x), upper = 1.0f / (1.0f + e);
    sum += (x > 0 ? x : 0.0f) + log1p_unit(e);
    slope[i] = (x >= 0 ? upper : e * upper) * b * -curvature;
  }
  return sum;
}

/* The sum of log(1 + exp(log_height - curvature beta^2 / 2)), and its slope in each beta. */
EXPORT int slabnet_bump(int64_t n, const float *beta, float log_height, float curvature, float *slope, float *sum,
                        int threads) {
  const int64_t pieces = (n + PIECE - 1) / PIECE;
  float *parts = (float *)calloc((size_t)pieces + 1, sizeof(float));
  if (!parts) return 1;
  THREADS(pieces > FEW_PIECES)
  for (int64_t piece = 0; piece < pieces; piece++) {
    const int64_t at = piece * PIECE;
    const int count = (int)(n - at < PIECE ? n - at : PIECE);
    parts[piece] = bump_piece(count, log_height, curvature, beta + at, slope + at);
  }
  *sum = (float)ordered_sum(parts, pieces);
  free(parts);
  (void)threads;
  return 0;
}
