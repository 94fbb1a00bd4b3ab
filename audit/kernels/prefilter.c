/* Correlation of gradients after a few steps of registration at 16 px, to reject most pairs. */
#include "agreement.h"

/* Invert a symmetric positive matrix in place by Gauss and Jordan; false where it is not. */
static inline bool invert(double matrix[8][8])
{
    for (int i = 0; i < 8; i++) {
        double pivot = matrix[i][i];
        if (pivot <= 1e-9)
            return false;
        matrix[i][i] = 1.0;
        for (int j = 0; j < 8; j++)
            matrix[i][j] /= pivot;
        for (int r = 0; r < 8; r++) {
            double factor = matrix[r][i];
            if (r == i)
                continue;
            matrix[r][i] = 0.0;
            for (int j = 0; j < 8; j++)
                matrix[r][j] -= factor * matrix[i][j];
        }
    }
    return true;
}

/* Fill in what an error of each pixel adds to the map; false for a flat template. */
static inline bool project(planes *s, float steps[6][COARSE_SIZE])
{
    double matrix[8][8], unused[8], trace = 0.0;
    find_gradients(s, COARSE);
    for (int k = 0; k < COARSE_SIZE; k++)
        s->weight[k] = 1.0f, s->error[k] = 0.0f;
    fill_equations(s, matrix, unused, COARSE);
    for (int i = 0; i < 6; i++)
        trace += matrix[i][i];
    for (int i = 0; i < 8; i++) {
        matrix[i][i] += i < 6 ? 0.01 * trace / 6.0 : 0.001 * matrix[i][i];
        for (int j = 0; j < i; j++)
            matrix[j][i] = matrix[i][j];
    }
    if (!invert(matrix))
        return false;
    for (int i = 0; i < 6; i++) {
        float m[8];
        for (int j = 0; j < 8; j++)
            m[j] = (float)matrix[i][j];
        for (int k = 0; k < COARSE_SIZE; k += LANES) {
            lanes x = offsets(k % COARSE, COARSE) / (0.5f * COARSE);
            float y = (k / COARSE + 0.5f) / (0.5f * COARSE) - 1.0f;
            lanes across = load(s->across + k) * (m[0] * x + (m[1] * y + m[2]));
            lanes down = load(s->down + k) * (m[3] * x + (m[4] * y + m[5]));
            store(steps[i] + k, across + down + (load(s->template + k) * m[6] + m[7]));
        }
    }
    return true;
}

/* Move the map p by one step; false where the search is lost. */
static inline bool take_step(const planes *s, int count, float steps[6][COARSE_SIZE], double *p)
{
    lanes sa = {0}, sb = {0}, saa = {0}, sbb = {0}, sums[6] = {{0}};
    double step[6];
    for (int k = 0; k < COARSE_SIZE; k += LANES) {
        lanes a = load(s->template + k), b = load(s->warped + k), seen = load(s->valid + k) * a;
        sa += seen, saa += seen * a, sb += b, sbb += b * b;
    }
    double mean_a = sum(sa) / (double)count, mean_b = sum(sb) / (double)count;
    double spread = larger(sum(saa) / (double)count - mean_a * mean_a, 1e-6);
    double other = larger(sum(sbb) / (double)count - mean_b * mean_b, 1e-6);
    float gain = (float)sqrt(spread / other), level = (float)mean_a, middle = (float)mean_b;
    for (int k = 0; k < COARSE_SIZE; k += LANES) {
        lanes warped = (load(s->warped + k) - middle) * gain + level;
        lanes error = load(s->valid + k) * (warped - load(s->template + k));
        for (int i = 0; i < 6; i++)
            sums[i] += load(steps[i] + k) * error;
    }
    for (int i = 0; i < 6; i++)
        step[i] = sum(sums[i]);
    return move(p, step) >= 0.0;
}

/* Return the gradient correlation after some steps from the map p; -2 where the search is lost. */
static inline double try_start(planes *s, float steps[6][COARSE_SIZE], double *p, int64_t n_steps)
{
    for (int64_t step = 0; step <= n_steps; step++) {
        int count = sample(s, p, COARSE);
        /* under a third of overlap anything can be made to agree */
        if (count < 0.3 * COARSE_SIZE || (step < n_steps && !take_step(s, count, steps, p)))
            return -2.0;
    }
    block_sums sums = sum_blocks(s, COARSE);
    return correlate_inner(&sums);
}

/* Set `passed` where some start leads to the correlation that a pair needs; -1 or less passes. */
__attribute__((flatten)) void pass_batch(
    const uint8_t *grey, const int64_t *pairs, const int64_t *orientations, const double
    *starts, int64_t n_steps, const double *needed, bool *passed, int64_t n_images, int64_t
    n_pairs, int64_t n_starts)
{
    planes s;
    float plane[FINE_SIZE], half[COARSE_SIZE], laid[COARSE_SIZE], steps[6][COARSE_SIZE];
    int64_t last = -1;
    bool usable = false;
    for (int64_t t = 0; t < n_pairs; t++) {
        passed[t] = needed[t] <= -1.0;
        if (passed[t])
            continue;
        if (pairs[2 * t] != last) {
            last = pairs[2 * t];
            to_floats(grey + last * FINE_SIZE, plane);
            halve(plane, s.template);
            usable = project(&s, steps);
        }
        if (!usable)
            continue;
        to_floats(grey + pairs[2 * t + 1] * FINE_SIZE, plane);
        halve(plane, half);
        orient(half, (int)orientations[t], laid, COARSE);
        find_corners(laid, s.corners, COARSE);
        for (int64_t start = 0; start < n_starts && !passed[t]; start++) {
            double p[6];
            memcpy(p, starts + 6 * start, sizeof p);
            passed[t] = try_start(&s, steps, p, n_steps) >= needed[t];
        }
    }
}
