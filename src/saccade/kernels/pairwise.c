/* The weight branch of SAN's pairwise attention, and its sums over neighbourhoods.
 *
 * t = relu(phi - psi shifted), m = seen t + where, z = relu(a m + c), logits = last z: one picture and one shift at a
 * time, computed again in every pass, so that only logits are ever written. phi: (n, R, h, w), psi: (n, R, h + size - 1,
 * w + size - 1), where: (size size, R, h, w). R and S, the channels inside and of the weights, are set by the build.
 * Sums over pixels are kept in double: a variance is the difference of two of them.
 *
 * Relu is written so that NaN stays NaN. `ivdep`: nothing overlaps, which gcc forgets after inlining.
 */
#include <stdlib.h>
#include <string.h>

typedef struct { int n, h, w, size; } Shape;

static inline float relu(float x) { return x < 0 ? 0 : x; }

static float dot(const float *a, const float *b, int N) {
    float sum = 0;
    for (int i = 0; i < N; i++) sum += a[i] * b[i];
    return sum;
}

static float total(const float *a, int N) {
    float sum = 0;
    for (int i = 0; i < N; i++) sum += a[i];
    return sum;
}

/* t and m of one picture at shift o. */
static void mix(const float *phi, const float *psi, const float *seen, const float *where, float *t, float *m, Shape s,
                int o) {
    int N = s.h * s.w, wide = s.w + s.size - 1, P = (s.h + s.size - 1) * wide;
    for (int c = 0; c < R; c++)
        for (int y = 0; y < s.h; y++) {
            const float *a = phi + c * N + y * s.w, *b = psi + c * P + (y + o / s.size) * wide + o % s.size;
            float *to = t + c * N + y * s.w;
            #pragma GCC ivdep
            for (int x = 0; x < s.w; x++) to[x] = relu(a[x] - b[x]);
        }
    for (int r = 0; r < R; r++) {
        const float *base = where + (long)(o * R + r) * N;
        float *to = m + r * N;
        #pragma GCC ivdep
        for (int i = 0; i < N; i++) {
            float sum = base[i];
            for (int c = 0; c < R; c++) sum += seen[r * R + c] * t[c * N + i];
            to[i] = sum;
        }
    }
}

/* z, and what arrives at it from the gradient g of the logits at this shift: both R x N. */
static void unmix(const float *m, const float *a, const float *c, const float *last, const float *g, long stride, float *z,
                  float *gz, int N) {
    for (int r = 0; r < R; r++) {
        #pragma GCC ivdep
        for (int i = 0; i < N; i++) {
            float v = a[r] * m[r * N + i] + c[r], sum = 0;
            for (int k = 0; k < S; k++) sum += last[k * R + r] * g[k * stride + i];
            z[r * N + i] = relu(v);
            gz[r * N + i] = v > 0 ? sum : 0;
        }
    }
}

/* sums: R of m, then R of m squared, about `middle`. */
void moments(const float *phi, const float *psi, const float *seen, const float *where, double *sums, int n, int h, int w,
             int size) {
    Shape s = {n, h, w, size};
    int N = h * w, P = (h + size - 1) * (w + size - 1);
    float *t = malloc(sizeof(float) * 2 * R * N), *m = t + R * N;
    for (int k = 0; k < n; k++)
        for (int o = 0; o < size * size; o++) {
            mix(phi + (long)k * R * N, psi + (long)k * R * P, seen, where, t, m, s, o);
            for (int r = 0; r < R; r++) {
                sums[r] += total(m + r * N, N);
                sums[R + r] += dot(m + r * N, m + r * N, N);
            }
        }
    free(t);
}

void logits(const float *phi, const float *psi, const float *seen, const float *where, const float *a, const float *c,
            const float *last, float *out, int n, int h, int w, int size) {
    Shape s = {n, h, w, size};
    int N = h * w, P = (h + size - 1) * (w + size - 1), area = size * size;
    float *t = malloc(sizeof(float) * 2 * R * N), *m = t + R * N;
    for (int k = 0; k < n; k++)
        for (int o = 0; o < area; o++) {
            mix(phi + (long)k * R * N, psi + (long)k * R * P, seen, where, t, m, s, o);
            for (int j = 0; j < S; j++) {
                float *to = out + ((long)(k * S + j) * area + o) * N;
                #pragma GCC ivdep
                for (int i = 0; i < N; i++) {
                    float sum = 0;
                    for (int r = 0; r < R; r++) sum += last[j * R + r] * relu(a[r] * m[r * N + i] + c[r]);
                    to[i] = sum;
                }
            }
        }
    free(t);
}

/* sums: R of gz, R of gz m, then S x R of g z, the gradient of `last`. */
void gather(const float *phi, const float *psi, const float *seen, const float *where, const float *a, const float *c,
            const float *last, const float *g, double *sums, int n, int h, int w, int size) {
    Shape s = {n, h, w, size};
    int N = h * w, P = (h + size - 1) * (w + size - 1), area = size * size;
    float *t = malloc(sizeof(float) * 4 * R * N), *m = t + R * N, *z = m + R * N, *gz = z + R * N;
    for (int k = 0; k < n; k++)
        for (int o = 0; o < area; o++) {
            const float *here = g + ((long)k * S * area + o) * N;
            mix(phi + (long)k * R * N, psi + (long)k * R * P, seen, where, t, m, s, o);
            unmix(m, a, c, last, here, (long)area * N, z, gz, N);
            for (int r = 0; r < R; r++) {
                sums[r] += total(gz + r * N, N);
                sums[R + r] += dot(gz + r * N, m + r * N, N);
                for (int j = 0; j < S; j++)
                    sums[2 * R + j * R + r] += dot(here + (long)j * area * N, z + r * N, N);
            }
        }
    free(t);
}

/* The gradient of m is by_grad gz + by_self m + by_one; from it those of seen (sums, R x R), where, phi and psi. */
void scatter(const float *phi, const float *psi, const float *seen, const float *where, const float *a, const float *c,
             const float *last, const float *g, const float *by_grad, const float *by_self, const float *by_one,
             double *sums, float *gwhere, float *gphi, float *gpsi, int n, int h, int w, int size) {
    Shape s = {n, h, w, size};
    int N = h * w, wide = w + size - 1, P = (h + size - 1) * wide, area = size * size;
    float *t = malloc(sizeof(float) * 4 * R * N), *m = t + R * N, *z = m + R * N, *gz = z + R * N;
    for (int k = 0; k < n; k++)
        for (int o = 0; o < area; o++) {
            mix(phi + (long)k * R * N, psi + (long)k * R * P, seen, where, t, m, s, o);
            unmix(m, a, c, last, g + ((long)k * S * area + o) * N, (long)area * N, z, gz, N);
            for (int r = 0; r < R; r++) {
                float *to = gwhere + (long)(o * R + r) * N;
                #pragma GCC ivdep
                for (int i = 0; i < N; i++) {
                    float v = by_grad[r] * gz[r * N + i] + by_self[r] * m[r * N + i] + by_one[r];
                    gz[r * N + i] = v;
                    to[i] += v;
                }
                for (int d = 0; d < R; d++) sums[r * R + d] += dot(gz + r * N, t + d * N, N);
            }
            for (int d = 0; d < R; d++)
                for (int y = 0; y < h; y++) {
                    float *one = gphi + (long)(k * R + d) * N + y * w;
                    float *two = gpsi + (long)(k * R + d) * P + (y + o / size) * wide + o % size;
                    #pragma GCC ivdep
                    for (int x = 0; x < w; x++) {
                        float sum = 0;
                        for (int r = 0; r < R; r++) sum += seen[r * R + d] * gz[r * N + y * w + x];
                        sum = t[d * N + y * w + x] > 0 ? sum : 0;
                        one[x] += sum;
                        two[x] -= sum;
                    }
                }
        }
    free(t);
}
