/* White ink over scenes: out = a + (1 - a) s with opacity a and scene s in [0, 1], from bytes, picture by picture.
 *
 * ink: (., small, small), in the middle of the scene; scenes: (., channels, size, size); out: (n, channels, size, size).
 * Operation by operation as torch does it, hence no fused multiply-add: the same bits. */
#include <stdint.h>

#pragma GCC optimize ("fp-contract=off")
#pragma STDC FP_CONTRACT OFF

static void floats(const unsigned char *restrict from, float *restrict to, int n) {
    for (int i = 0; i < n; i++) to[i] = from[i] / 255.0f;
}

static void cover(const float *restrict opacity, float *restrict scene, int n) {
    for (int i = 0; i < n; i++) {
        float rest = (1.0f - opacity[i]) * scene[i];
        scene[i] = rest + opacity[i];
    }
}

/* Returns 1, and nothing of use, where a number names no ink or no scene. */
int paste(const unsigned char *ink, const unsigned char *scenes, const int64_t *index, const int64_t *which, float *out,
          int64_t inks, int64_t places, int n, int small, int size, int channels) {
    int margin = (size - small) / 2, area = size * size;
    float opacity[small * small];
    for (int i = 0; i < n; i++, out += channels * area) {
        if (index[i] < 0 || index[i] >= inks || which[i] < 0 || which[i] >= places) return 1;
        floats(scenes + which[i] * channels * area, out, channels * area);
        floats(ink + index[i] * small * small, opacity, small * small);
        for (int row = 0; row < channels * small; row++) {
            int c = row / small, y = row % small;
            cover(opacity + y * small, out + c * area + (margin + y) * size + margin, small);
        }
    }
    return 0;
}
