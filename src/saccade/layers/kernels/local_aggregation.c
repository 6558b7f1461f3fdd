/* out[c] = sum over shifts o of weights[c mod S, o] * x[c] shifted by o, and its gradients, a row at a time.
 *
 * x: (n, G S, h + size - 1, w + size - 1), weights: (n, S, size size, h, w), out: (n, G S, h, w). Weights are most of
 * what is read, and those of one pixel lie far apart, so a row of all of them is copied side by side first; then sums
 * over shifts stay in registers, eight pixels of up to eight channels. The gradient of x is collected by the receiver,
 * over the shifts along a row, from lines with zeros at both ends: adding at every shift would wait for the store of
 * the shift before.
 */
#include <stdlib.h>
#include "rows.h"

/* P: of a map of x; N: of out; a line has `before` zeros or more at both ends. */
typedef struct { int S, w, size, wide, N, P, before, line; } Shape;

static Shape shape(int S, int h, int w, int size) {
    int wide = w + size - 1, before = whole(size - 1);
    return (Shape){S, w, size, wide, h * w, (h + size - 1) * wide, before, before + whole(whole(w) + size - 1)};
}

/* Runs body(x, left, B) over a row of `width` for B channels; left is a constant 8 wherever eight pixels are left. */
#define ALONG(width, body, B) do { \
    int x = 0; \
    for (; x + WIDTH <= (width); x += WIDTH) body(x, WIDTH, B); \
    if (x < (width)) body(x, (width) - x, B); \
} while (0)

/* out = sum over o of p x. */
static inline void add_up(const float *x, const float *p, float *out, Shape s, int k, int B) {
    V sum[MOST] = {0};
    for (int i = 0; i < s.size; i++)
        for (int j = 0; j < s.size; j++, p += s.line)
            for (int b = 0; b < B; b++)
                sum[b] += *(const Loose *)p * get(x + b * s.S * s.P + i * s.wide + j, k);
    for (int b = 0; b < B; b++) put(out + b * s.S * s.N, sum[b], k);
}

/* The gradient of p: sums over channels of g x; `add` to what is there. */
static inline void meet(const float *x, const float *g, float *gp, int add, Shape s, int k, int B) {
    V grad[MOST];
    for (int b = 0; b < B; b++) grad[b] = *(const Loose *)(g + b * s.line);
    for (int i = 0; i < s.size; i++)
        for (int j = 0; j < s.size; j++, gp += s.N) {
            V sum = {0};
            if (add) sum = get(gp, k);
            for (int b = 0; b < B; b++) sum += grad[b] * get(x + b * s.S * s.P + i * s.wide + j, k);
            put(gp, sum, k);
        }
}

/* gx[x] += sum over j of p[j][x - j] g[x - j]. */
static inline void collect(const float *p, const float *g, float *gx, Shape s, int k, int B) {
    V sum[MOST];
    for (int b = 0; b < B; b++) sum[b] = get(gx + b * s.S * s.P, k);
    for (int j = 0; j < s.size; j++)
        for (int b = 0; b < B; b++)
            sum[b] += *(const Loose *)(p + j * (s.line - 1)) * *(const Loose *)(g + b * s.line - j);
    for (int b = 0; b < B; b++) put(gx + b * s.S * s.P, sum[b], k);
}

/* Lines of zeros; the pointer stands where a row begins. */
static float *lines(int count, Shape s) {
    size_t bytes = sizeof(float) * count * s.line;
    return (float *)memset(aligned_alloc(sizeof(V), bytes), 0, bytes) + s.before;
}

/* Rows onto lines. */
static void lay(const float *from, long apart, float *to, int count, Shape s) {
    for (int o = 0; o < count; o++) memcpy(to + o * s.line, from + o * apart, sizeof(float) * s.w);
}

/* Which of all n G S channels is the c-th of those that share weight k of all n S. */
#define CHANNEL(k, c) ((long)((k) / S * G * S + (c) * S + (k) % S))

void forward(const float *maps, const float *weights, float *out, int n, int G, int S, int h, int w, int size) {
    Shape s = shape(S, h, w, size);
    float *p = lines(size * size, s);
    for (int k = 0; k < n * S; k++, weights += size * size * s.N)
        for (int y = 0; y < h; y++) {
            lay(weights + y * w, s.N, p, size * size, s);
            #define BODY(x, left, B) add_up(from + x, p + x, to + x, s, left, B)
            #define CHANNELS(c, B) do { \
                const float *from = maps + CHANNEL(k, c) * s.P + y * s.wide; \
                float *to = out + CHANNEL(k, c) * s.N + y * w; \
                ALONG(w, BODY, B); \
            } while (0)
            TOGETHER(G, CHANNELS);
            #undef BODY
            #undef CHANNELS
        }
    free(p - s.before);
}

void backward(const float *maps, const float *weights, const float *g, float *gx, float *gweights, int n, int G, int S,
              int h, int w, int size) {
    Shape s = shape(S, h, w, size);
    int area = size * size;
    float *p = lines(area, s), *grad = lines(G, s);
    for (int k = 0; k < n * S; k++, weights += area * s.N, gweights += area * s.N)
        for (int y = 0; y < h; y++) {
            lay(weights + y * w, s.N, p, area, s);
            lay(g + CHANNEL(k, 0) * s.N + y * w, (long)S * s.N, grad, G, s);
            #define MEET(x, left, B) meet(from + x, grad + first * s.line + x, gweights + y * w + x, first, s, left, B)
            #define COLLECT(x, left, B) collect(p + i * size * s.line + x, grad + first * s.line + x, to + i * s.wide + x, \
                                              s, left, B)
            #define CHANNELS(c, B) do { \
                int first = c; \
                const float *from = maps + CHANNEL(k, c) * s.P + y * s.wide; \
                float *to = gx + CHANNEL(k, c) * s.P + y * s.wide; \
                ALONG(w, MEET, B); \
                for (int i = 0; i < size; i++) ALONG(s.wide, COLLECT, B); \
            } while (0)
            TOGETHER(G, CHANNELS);
            #undef MEET
            #undef COLLECT
            #undef CHANNELS
        }
    free(p - s.before);
    free(grad - s.before);
}
