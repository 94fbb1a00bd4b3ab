/* Detections of a model: which object each has found, and the precision of a ranked list. */
#include "kernels.h"

INLINED double larger(double a, double b) { return a > b ? a : b; }
INLINED double smaller(double a, double b) { return a < b ? a : b; }

/* Return the IoU of two boxes (x, y, width, height); of a crowd, the share of the detection. */
INLINED double overlap_of(const double *found, const double *truth, bool crowd)
{
    double w = smaller(found[0] + found[2], truth[0] + truth[2]) - larger(found[0], truth[0]);
    double h = smaller(found[1] + found[3], truth[1] + truth[3]) - larger(found[1], truth[1]);
    if (w <= 0 || h <= 0)
        return 0;
    double own = found[2] * found[3];
    double all = crowd ? own : own + truth[2] * truth[3] - w * h;
    return all > 0 ? w * h / all : 0;
}

/* Fill `hit` and `skip` (sizes, detections), a bit a threshold: detections begin[k] to begin[k + 1]
 * may have objects low[k] to high[k]. Within a picture and class detections lie best first, objects
 * as the file has them. `overlap` has room for their table, `order` and `taken` for objects. */
void assign_detections(const int64_t *low, const int64_t *high, const int64_t *begin,
                       const double *found, const double *truth, const bool *crowd,
                       const bool *counts, const bool *far, const double *thresholds,
                       uint16_t *hit, uint16_t *skip, double *overlap, int64_t *order, bool *taken,
                       int64_t pictures, int64_t detections, int64_t objects, int64_t sizes,
                       int64_t levels, int64_t cells, int64_t most)
{
    for (int64_t k = 0; k < pictures; k++) {
        const int64_t first = begin[k], n = begin[k + 1] - first, g0 = low[k], m = high[k] - g0;
        if (first < 0 || n < 0 || first > detections - n || g0 < 0 || m < 0 || m > most
            || g0 > objects - m || n * m > cells)
            continue;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < m; j++)
                overlap[i * m + j] =
                    overlap_of(found + 4 * (first + i), truth + 4 * (g0 + j), crowd[g0 + j]);
        for (int64_t a = 0; a < sizes; a++) {
            const bool *counted = counts + a * objects + g0;
            int64_t plain = 0, behind; /* objects that count come first */
            for (int64_t j = 0; j < m; j++)
                if (counted[j])
                    order[plain++] = j;
            behind = plain;
            for (int64_t j = 0; j < m; j++)
                if (!counted[j])
                    order[behind++] = j;
            for (int64_t t = 0; t < levels; t++) {
                const uint16_t bit = (uint16_t)(1 << t);
                for (int64_t j = 0; j < m; j++)
                    taken[j] = false;
                for (int64_t i = 0; i < n; i++) {
                    double best = thresholds[t];
                    int64_t match = -1, at = a * detections + first + i;
                    for (int64_t o = 0; o < m; o++) {
                        int64_t j = order[o];
                        if (taken[j] && !crowd[g0 + j])
                            continue;
                        if (o >= plain && match >= 0 && counted[match])
                            break; /* it has an object that counts: no other may take it */
                        if (overlap[i * m + j] >= best) {
                            best = overlap[i * m + j];
                            match = j;
                        }
                    }
                    if (match >= 0) {
                        taken[match] = true;
                        hit[at] |= bit;
                    }
                    if (match >= 0 ? !counted[match] : far[at])
                        skip[at] |= bit;
                }
            }
        }
    }
}

/* Fill the average precision at each threshold (`bits`), and where `gain` and `found` have an entry
 * a detection them too: what its weight adds, and what it has found.
 *
 * `weight`, `hit`, `skip` are of the detections of a class, best first; `total` is the weight of its
 * objects. `scratch` holds five numbers a detection. */
void walk_ranking(const double *weight, const uint16_t *hit, const uint16_t *skip,
                  const int64_t *bits, double total, const double *recalls, double *value,
                  double *gain, double *found, double *scratch, int64_t *place, int64_t n,
                  int64_t levels, int64_t recall_count, int64_t gains)
{
    double *precision = scratch, *right = precision + n, *below = right + n;
    double *a_at = below + n, *b_at = a_at + n;
    const bool with_gain = gains == n;
    for (int64_t b = 0; b < levels; b++) {
        double hits = 0, misses = 0, summed = 0, a = 0, own_b = 0;
        int64_t m = 0, next = 0;
        for (int64_t k = 0; k < n; k++) {
            if (weight[k] == 0 || (skip[k] >> bits[b]) & 1)
                continue;
            if ((hit[k] >> bits[b]) & 1)
                hits += weight[k];
            else
                misses += weight[k];
            place[m] = k;
            right[m] = hits;
            below[m] = hits + misses;
            precision[m] = hits / (misses + hits + 2.220446049250313e-16);
            a_at[m] = b_at[m] = 0;
            m++;
        }
        for (int64_t j = m - 1, best = m - 1; j >= 0; j--) { /* raise to the best one behind */
            if (precision[j] >= precision[best])
                best = j;
            const double raised = precision[best];
            const int64_t k = place[j];
            if (with_gain && (hit[k] >> bits[b]) & 1) {
                a_at[best] += weight[k] / below[best];
                b_at[best] += weight[k] / below[best] * raised;
                found[k] += raised / levels;
            }
            precision[j] = raised;
        }
        for (int64_t r = 0; r < recall_count; r++) {
            while (next < m && right[next] / total < recalls[r])
                next++;
            if (next == m)
                break;
            summed += precision[next];
        }
        value[b] = summed / recall_count;
        for (int64_t j = m - 1; with_gain && j >= 0; j--) {
            const int64_t k = place[j];
            a += a_at[j];
            own_b += b_at[j];
            gain[k] += (((hit[k] >> bits[b]) & 1 ? precision[j] + a : 0) - own_b) / total / levels;
        }
    }
}
