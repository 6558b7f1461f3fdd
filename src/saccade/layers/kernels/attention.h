/* What softmax attention of one head in cache needs around its products. Scores are in powers of two, rows of maps S
 * long, a multiple of LANES that is at least the number of tokens, T.
 */
#include <string.h>
#include "product.h"

static const float LOG2_E = 1.44269504089f, LN_2 = 0.69314718056f, FAR = -1e30f; /* FAR: a score whose power is 0 */

/* Scores s to probabilities. tops: the largest score of each row, and one over the sum of the row, for `again`. */
static void soft_max(float *s, float *tops, int T, int S) {
    for (int r = 0; r < T; r++) {
        float *row = s + r * S, top = largest(row, S);
        for (int l = 0; l < S; l++) row[l] = power_of_two(row[l] - top);
        float share = 1 / sum_of(row, S);
        for (int l = 0; l < S; l++) row[l] *= share;
        tops[r] = top;
        tops[T + r] = share;
    }
}

/* Scores p to the same probabilities once more, and g, their gradient, to `factor` times that of the scores. */
static void again(float *p, float *g, const float *tops, float factor, int T, int S) {
    for (int r = 0; r < T; r++) {
        float *row = p + r * S, *grow = g + r * S, top = tops[r], share = tops[T + r];
        vec inner = {0};
        for (int l = 0; l < S; l++) row[l] = power_of_two(row[l] - top) * share;
        for (int l = 0; l < S; l += LANES) inner += load(row + l) * load(grow + l);
        float mean = total(inner);
        for (int l = 0; l < S; l++) grow[l] = row[l] * (grow[l] - mean) * factor;
    }
}
