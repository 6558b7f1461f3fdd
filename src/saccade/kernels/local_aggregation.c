/* out[c] = sum over shifts o of weights[c mod S, o] * x[c] shifted by o, and its gradients.
 *
 * x: (n, G S, h + size - 1, w + size - 1), weights: (n, S, size size, h, w), out: (n, G S, h, w). A row of weights is
 * read once for four of the G channels that share it. `ivdep`: nothing overlaps, which gcc forgets after inlining.
 */
#define AT(base, channel, plane) ((base) + (long)(channel) * (plane))

static inline void rows(int B, const float *weight, const float *const *x, float *const *out, int w) {
    #pragma GCC ivdep
    for (int i = 0; i < w; i++)
        for (int b = 0; b < B; b++) out[b][i] += weight[i] * x[b][i];
}

static inline void back_rows(int B, const float *weight, const float *const *x, const float *const *g,
                             float *gweight, float *const *gx, int w) {
    #pragma GCC ivdep
    for (int i = 0; i < w; i++) {
        float sum = gweight[i];
        for (int b = 0; b < B; b++) {
            gx[b][i] += weight[i] * g[b][i];
            sum += x[b][i] * g[b][i];
        }
        gweight[i] = sum;
    }
}

void forward(const float *x, const float *weights, float *out, int n, int G, int S, int h, int w, int size) {
    int N = h * w, wide = w + size - 1, P = (h + size - 1) * wide, area = size * size;
    for (int k = 0; k < n * S; k++)
        for (int first = 0; first < G; ) {
            int B = G - first >= 4 ? 4 : 1, c = k / S * G * S + first * S + k % S;
            for (int y = 0; y < h; y++)
                for (int o = 0; o < area; o++) {
                    const float *from[4];
                    float *to[4];
                    for (int b = 0; b < B; b++) {
                        from[b] = AT(x, c + b * S, P) + (y + o / size) * wide + o % size;
                        to[b] = AT(out, c + b * S, N) + y * w;
                    }
                    const float *weight = AT(weights, (long)k * area + o, N) + y * w;
                    if (B == 4) rows(4, weight, from, to, w); else rows(1, weight, from, to, w);
                }
            first += B;
        }
}

void backward(const float *x, const float *weights, const float *g, float *gx, float *gweights, int n, int G, int S,
              int h, int w, int size) {
    int N = h * w, wide = w + size - 1, P = (h + size - 1) * wide, area = size * size;
    for (int k = 0; k < n * S; k++)
        for (int first = 0; first < G; ) {
            int B = G - first >= 4 ? 4 : 1, c = k / S * G * S + first * S + k % S;
            for (int y = 0; y < h; y++)
                for (int o = 0; o < area; o++) {
                    const float *from[4], *grad[4];
                    float *to[4];
                    for (int b = 0; b < B; b++) {
                        long at = (y + o / size) * wide + o % size;
                        from[b] = AT(x, c + b * S, P) + at;
                        to[b] = AT(gx, c + b * S, P) + at;
                        grad[b] = AT(g, c + b * S, N) + y * w;
                    }
                    const float *weight = AT(weights, (long)k * area + o, N) + y * w;
                    float *gweight = AT(gweights, (long)k * area + o, N) + y * w;
                    if (B == 4) back_rows(4, weight, from, grad, gweight, to, w);
                    else back_rows(1, weight, from, grad, gweight, to, w);
                }
            first += B;
        }
}
