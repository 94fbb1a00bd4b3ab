/* Align pairs of signatures by inverse-compositional Lucas-Kanade.
 * Source: Baker and Matthews, IJCV 2004. */
#include "agreement.h"

enum { N_SCORES = 14 };

/* Solve a symmetric positive system in place by Cholesky; false where it is not positive. */
static inline bool solve(double matrix[8][8], double vector[8])
{
    for (int i = 0; i < 8; i++)
        for (int j = 0; j <= i; j++) {
            double total = matrix[i][j];
            for (int k = 0; k < j; k++)
                total -= matrix[i][k] * matrix[j][k];
            if (i == j && total <= 1e-9)
                return false;
            matrix[i][j] = i == j ? 1.0 / sqrt(total) : total * matrix[j][j];
        }
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < i; k++)
            vector[i] -= matrix[i][k] * vector[k];
        vector[i] *= matrix[i][i];
    }
    for (int i = 7; i >= 0; i--) {
        for (int k = i + 1; k < 8; k++)
            vector[i] -= matrix[k][i] * vector[k];
        vector[i] *= matrix[i][i];
    }
    return true;
}

/* Fill the errors of the warped image, and the weights of pixels; `margin` px count for a tenth. */
static inline void weigh_errors(planes *s, int count, int step, int margin, const int n)
{
    lanes st = {0}, sw = {0}, stt = {0}, sww = {0}, see = {0};
    for (int k = 0; k < n * n; k += LANES) {
        lanes t = load(s->template + k), w = load(s->warped + k), seen = load(s->valid + k) * t;
        st += seen, stt += seen * t, sw += w, sww += w * w;
    }
    float mt = sum(st) / count, mw = sum(sw) / count;
    float spread = (float)larger(sum(stt) / count - mt * mt, 1e-6f);
    float other = (float)larger(sum(sww) / count - mw * mw, 1e-6f);
    float gain = sqrtf(spread / other), level = mt - mw * gain;
    for (int k = 0; k < n * n; k += LANES) {
        lanes warped = load(s->warped + k) * gain + level;
        lanes error = load(s->valid + k) * (warped - load(s->template + k));
        store(s->error + k, error);
        see += error * error;
    }
    /* Cauchy weights from the third step on: captions hardly count */
    float cut = step < 2 ? 0.0f : 1.0f / (float)larger(1.5f * sum(see) / count, 1e-6f);
    for (int k = 0; k < n * n; k += LANES) {
        lanes error = load(s->error + k);
        store(s->weight + k, load(s->valid + k) / (1.0f + error * error * cut));
    }
    for (int y = 0; y < n && margin > 0; y++)
        for (int x = 0; x < n; x++)
            if (y < margin || y >= n - margin || x < margin || x >= n - margin)
                s->weight[y * n + x] *= 0.1f;
}

/* Run Lucas-Kanade from the map p, in place; false where the overlap or the system fails. */
static inline bool descend(planes *s, double *p, int steps, double damping, int margin, const int n)
{
    double matrix[8][8], vector[8];
    for (int step = 0; step < steps; step++) {
        int count = sample(s, p, n);
        if (count < 0.3 * n * n)
            return false;
        weigh_errors(s, count, step, margin, n);
        fill_equations(s, matrix, vector, n);
        /* Levenberg-Marquardt damping relative to the mean of the diagonal */
        double trace = 0.0;
        for (int i = 0; i < 6; i++)
            trace += matrix[i][i];
        for (int i = 0; i < 6; i++)
            matrix[i][i] += damping * trace / 6.0;
        matrix[6][6] *= 1.001;
        matrix[7][7] *= 1.001;
        if (!solve(matrix, vector))
            return false;
        double change = move(p, vector);
        if (change < 0.0)
            return false;
        /* 0.002 of half the side is a thirtieth of a pixel */
        if (change < 0.002)
            break;
    }
    return true;
}

/* Align pair after pair, the coarse search first; see `align_pairs` in verification.py. */
__attribute__((flatten)) void align_batch(
    const uint8_t *grey, const uint8_t *colour, const int64_t *pairs, const int64_t
    *orientations, const double *starts, const int64_t *margins, double abandon, double *maps,
    double *scores, int64_t n_images, int64_t n_pairs, int64_t n_starts)
{
    planes fine, coarse;
    float raw[FINE_SIZE], laid[FINE_SIZE], soft[FINE_SIZE], half[COARSE_SIZE];
    for (int64_t t = 0; t < n_pairs; t++, scores += N_SCORES) {
        int64_t i = pairs[2 * t], j = pairs[2 * t + 1], first = 0;
        int k = (int)orientations[t];
        double p[6], best[6], top = -2.0, unused;
        to_floats(grey + i * FINE_SIZE, raw);
        soften(raw, fine.template);
        halve(raw, coarse.template);
        to_floats(grey + j * FINE_SIZE, raw);
        orient(raw, k, laid, FINE);
        halve(laid, half);
        soften(laid, soft);
        find_gradients(&coarse, COARSE);
        find_corners(half, coarse.corners, COARSE);
        for (int64_t s = 0; s < n_starts; s++) {
            memcpy(p, starts + 6 * s, sizeof p);
            if (!descend(&coarse, p, 8, 0.01, (int)margins[s], COARSE)
                || sample(&coarse, p, COARSE) < 0.3 * COARSE_SIZE)
                continue;
            /* without the worst strip, or captioned copies would lose at this stage */
            block_sums sums = sum_blocks(&coarse, COARSE);
            double inner = correlate_inner(&sums);
            if (inner > top) {
                top = inner;
                first = s;
                memcpy(best, p, sizeof p);
            }
        }
        for (int m = 0; m < N_SCORES; m++)
            scores[m] = -1.0;
        scores[3] = top;
        if (top < abandon)
            continue;
        find_gradients(&fine, FINE);
        find_corners(soft, fine.corners, FINE);
        memcpy(p, best, sizeof p);
        if (!descend(&fine, p, 10, 0.002, 2 * (int)margins[first], FINE))
            memcpy(p, best, sizeof p);
        int count = sample(&fine, p, FINE);
        block_sums sums = sum_blocks(&fine, FINE);
        scores[0] = correlation(sums.all_ab, sums.all_aa, sums.all_bb);
        correlate_blocks(&sums, FINE, scores + 1, scores + 2, scores + 7, scores + 11);
        scores[10] = correlate_inner(&sums);
        scores[4] = correlate_levels(&fine);
        /* the map's area turns the template's overlap into the other image's */
        double area = fabs((1.0 + p[0]) * (1.0 + p[4]) - p[1] * p[3]);
        scores[5] = count / (double)FINE_SIZE;
        scores[6] = scores[5] * area < 1.0 ? scores[5] * area : 1.0;
        sample(&coarse, p, COARSE);
        sums = sum_blocks(&coarse, COARSE);
        scores[3] = correlation(sums.all_ab, sums.all_aa, sums.all_bb);
        correlate_blocks(&sums, COARSE, scores + 13, &unused, &unused, &unused);
        scores[12] = correlate_inner(&sums);
        correlate_colours(colour + i * 3 * COLOUR_SIZE, colour + j * 3 * COLOUR_SIZE, k, p,
                          scores + 8, scores + 9);
        memcpy(maps + 6 * t, p, sizeof p);
    }
}
