/* How well two planes agree, one laid on the other: gradients, levels, colours. */
#include "planes.h"

enum { BLOCKS = 4, N_BLOCKS = BLOCKS * BLOCKS, COLOUR = 8, COLOUR_SIZE = COLOUR * COLOUR };

/* Products of the gradients of two planes over their overlap, by 4 x 4 blocks and in all. */
typedef struct {
    double ab[N_BLOCKS], aa[N_BLOCKS], bb[N_BLOCKS], pixels[N_BLOCKS];
    double all_ab, all_aa, all_bb, all_pixels;
} block_sums;

static inline double correlation(double ab, double aa, double bb)
{
    return ab / sqrt(larger(aa * bb, 1e-9));
}

/* Sum the products of gradients: brightness, contrast and slow shading cancel. */
static inline block_sums sum_blocks(const planes *s, const int n)
{
    const int side = n / BLOCKS;
    const float *a = s->template, *b = s->warped, *valid = s->valid;
    block_sums sums;
    memset(&sums, 0, sizeof sums);
    for (int row = 0; row < BLOCKS; row++) {
        float ab[FINE] = {0}, aa[FINE] = {0}, bb[FINE] = {0}, pixels[FINE] = {0};
        for (int y = row * side; y < row * side + side; y++) {
            if (y == 0 || y == n - 1)
                continue;
            for (int x = 0, k = y * n; x < n; x++, k++) {
                float ax = a[k + 1] - a[k - 1], ay = a[k + n] - a[k - n];
                float bx = b[k + 1] - b[k - 1], by = b[k + n] - b[k - n];
                float seen = valid[k - 1] * valid[k + 1] * valid[k - n] * valid[k + n];
                ab[x] += seen * (ax * bx + ay * by);
                aa[x] += seen * (ax * ax + ay * ay);
                bb[x] += seen * (bx * bx + by * by);
                pixels[x] += seen;
            }
        }
        for (int x = 1; x < n - 1; x++) {
            int k = row * BLOCKS + x / side;
            sums.ab[k] += ab[x];
            sums.aa[k] += aa[x];
            sums.bb[k] += bb[x];
            sums.pixels[k] += pixels[x];
        }
    }
    for (int k = 0; k < N_BLOCKS; k++) {
        sums.all_ab += sums.ab[k];
        sums.all_aa += sums.aa[k];
        sums.all_bb += sums.bb[k];
        sums.all_pixels += sums.pixels[k];
    }
    return sums;
}

/* Return the best correlation with and without an outer row or column of blocks (captions). */
static inline double correlate_inner(const block_sums *s)
{
    double best = correlation(s->all_ab, s->all_aa, s->all_bb);
    for (int strip = 0; strip < 4; strip++) {
        double ab = s->all_ab, aa = s->all_aa, bb = s->all_bb;
        for (int m = 0; m < BLOCKS; m++) {
            int edge = (strip & 1) * (BLOCKS - 1);
            int k = strip < 2 ? edge * BLOCKS + m : m * BLOCKS + edge;
            ab -= s->ab[k];
            aa -= s->aa[k];
            bb -= s->bb[k];
        }
        if (aa > 0.4 * larger(s->all_aa, 1e-9) && bb > 0.4 * larger(s->all_bb, 1e-9))
            best = larger(best, correlation(ab, aa, bb));
    }
    return best;
}

/* Write the correlation over textured blocks: median, share above 0.5, number of such blocks, and
 * the concentration: 1 where all blocks share the energy, 1/16 where one holds it all. */
static inline void correlate_blocks(const block_sums *s, const int n, double *median, double *good,
                                    double *textured, double *concentration)
{
    double sorted[N_BLOCKS], energies = 0.0, squares = 0.0;
    int count = 0, n_good = 0;
    for (int k = 0; k < N_BLOCKS; k++) {
        double share = s->aa[k] / larger(s->all_aa, 1e-9) + s->bb[k] / larger(s->all_bb, 1e-9);
        double energy = 0.5 * share;
        energies += energy;
        squares += energy * energy;
        /* textured: a third of the average energy per pixel, and almost half of the block valid */
        if (s->pixels[k] < 0.4 * (n / BLOCKS) * (n / BLOCKS)
            || energy * larger(s->all_pixels, 1.0) < 0.33 * s->pixels[k])
            continue;
        double value = correlation(s->ab[k], s->aa[k], s->bb[k]);
        int at = count++;
        for (; at > 0 && sorted[at - 1] > value; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = value;
        n_good += value > 0.5;
    }
    if (count > 0)
        *median = 0.5 * (sorted[count / 2] + sorted[(count - 1) / 2]);
    else
        *median = correlation(s->all_ab, s->all_aa, s->all_bb);
    *good = count > 0 ? (double)n_good / count : 0.0;
    *textured = count;
    *concentration = energies * energies / larger(squares * N_BLOCKS, 1e-9);
}

/* Return the correlation of levels over the overlap of fine planes. */
static inline double correlate_levels(const planes *s)
{
    /* sums start at 1e-9, so that no overlap divides by zero */
    double ones = 1e-9, a = 1e-9, b = 1e-9, aa = 1e-9, bb = 1e-9, ab = 1e-9;
    for (int k = 0; k < FINE_SIZE; k++) {
        double valid = s->valid[k], level = s->template[k], other = s->warped[k];
        ones += valid;
        a += valid * level;
        b += valid * other;
        aa += valid * level * level;
        bb += valid * other * other;
        ab += valid * level * other;
    }
    double spread = (aa / ones - a / ones * a / ones) * (bb / ones - b / ones * b / ones);
    return (ab / ones - a / ones * b / ones) / sqrt(larger(spread, 1e-6));
}

/* Write the correlation of two opponent-colour planes through the map p, and their energy. */
static inline void correlate_colours(const uint8_t *colour_a, const uint8_t *colour_b, int k,
                                     const double *p, double *agreement, double *energy)
{
    enum { n = COLOUR };
    const double half = 0.5 * n;
    float second[COLOUR_SIZE][2];
    double first[COLOUR_SIZE][2], warped[COLOUR_SIZE][2];
    double mean_a[2] = {0}, mean_b[2] = {0}, ab = 0.0, aa = 0.0, bb = 0.0;
    int count = 0;
    for (int at = 0; at < COLOUR_SIZE; at++) {
        const uint8_t *rgb = colour_b + 3 * source_offset(at / n, at % n, n, k);
        second[at][0] = (float)rgb[0] - rgb[1];
        second[at][1] = 0.5f * (rgb[0] + rgb[1]) - rgb[2];
    }
    for (int at = 0; at < COLOUR_SIZE; at++) {
        double x = (at % n + 0.5) / half - 1.0, y = (at / n + 0.5) / half - 1.0;
        double u = ((1.0 + p[0]) * x + p[1] * y + p[2] + 1.0) * half - 0.5;
        double v = (p[3] * x + (1.0 + p[4]) * y + p[5] + 1.0) * half - 0.5;
        if (!(u >= -0.5 && v >= -0.5 && u <= n - 0.5 && v <= n - 0.5))
            continue;
        u = u > 0.0 ? (u < n - 1.001 ? u : n - 1.001) : 0.0;
        v = v > 0.0 ? (v < n - 1.001 ? v : n - 1.001) : 0.0;
        int row = (int)v, column = (int)u, from = row * n + column;
        const uint8_t *rgb = colour_a + 3 * at;
        first[count][0] = (float)rgb[0] - rgb[1];
        first[count][1] = 0.5f * (rgb[0] + rgb[1]) - rgb[2];
        for (int c = 0; c < 2; c++) {
            double top = second[from][c] + (u - column) * (second[from + 1][c] - second[from][c]);
            double low = second[from + n][c]
                         + (u - column) * (second[from + n + 1][c] - second[from + n][c]);
            warped[count][c] = top + (v - row) * (low - top);
            mean_a[c] += first[count][c];
            mean_b[c] += warped[count][c];
        }
        count++;
    }
    int total = count > 0 ? count : 1;
    for (int at = 0; at < count; at++)
        for (int c = 0; c < 2; c++) {
            double a = first[at][c] - mean_a[c] / total, b = warped[at][c] - mean_b[c] / total;
            ab += a * b;
            aa += a * a;
            bb += b * b;
        }
    *agreement = ab / sqrt(larger(aa * bb, 1e-6));
    *energy = sqrt(sqrt(aa * bb) / total);
}
