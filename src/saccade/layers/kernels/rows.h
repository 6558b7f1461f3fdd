/* Eight floats at a time, for kernels that go along the rows of pictures. */
#include <string.h>

#define WIDTH 8 /* of a vector */
#define MOST 8 /* channels at a time, for one read of their weight */
typedef float V __attribute__((vector_size(32), may_alias));
typedef float Loose __attribute__((vector_size(32), aligned(4), may_alias)); /* the same anywhere in memory */

static inline int whole(int length) { return (length + WIDTH - 1) / WIDTH * WIDTH; }

/* k < 8 floats in at most three moves, their lengths constants: a call of memcpy costs more than the work around it. */
static inline void copy(float *to, const float *from, int k) {
    if (k & 4) memcpy(to, from, 16);
    if (k & 2) memcpy(to + (k & 4), from + (k & 4), 8);
    if (k & 1) to[k & 6] = from[k & 6];
}

/* The first k of eight floats, then zeros. k is 8 at compile time but for the end of a row. */
static inline V get(const float *from, int k) {
    float v[WIDTH] = {0};
    if (k == WIDTH) return *(const Loose *)from;
    copy(v, from, k);
    return *(const Loose *)v;
}

static inline void put(float *to, V v, int k) {
    if (k == WIDTH) *(Loose *)to = v;
    else copy(to, (const float *)&v, k);
}

/* Runs body(b, B) over channels b ... b + B - 1 of those that share a weight; B is a constant. */
#define TOGETHER(count, body) do { \
    int b = 0; \
    for (; b + MOST <= (count); b += MOST) body(b, MOST); \
    for (; b + 4 <= (count); b += 4) body(b, 4); \
    for (; b < (count); b++) body(b, 1); \
} while (0)
