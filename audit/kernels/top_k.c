/* The search by descriptor: a table holds for each row its k best, best first, equals by number.
 * Rounding to 1 in 16,384 makes an image and its mirror image equally near. */
#include "kernels.h"

static inline float larger(float a, float b)
{
    return a > b ? a : b;
}

/* Write the best of the eight sums of partial products (8, size) that descriptor_knn lists. */
CLONES void best_orientation(
    const float *parts, float *restrict out, int64_t size)
{
    const float *even = parts, *odd = parts + size, *last_even = odd + size;
    const float *last_odd = last_even + size, *one = last_odd + size, *two = one + size;
    const float *one_swapped = two + size, *two_swapped = one_swapped + size;
    /* eight streams from the third-level cache: more loads in flight */
#pragma GCC unroll 2
    for (int64_t i = 0; i < size; i++) {
        /* classes are even-even, odd in x, odd in y, odd in both; a mirror flips two of them */
        float p0 = even[i] + odd[i], p3 = last_even[i] + last_odd[i];
        float upright = larger(p0 + one[i] + fabsf(two[i] + p3), p0 - one[i] + fabsf(two[i] - p3));
        /* with the axes swapped, what is odd under that changes sign */
        p0 = even[i] - odd[i], p3 = last_even[i] - last_odd[i];
        float swapped = larger(p0 + one_swapped[i] + fabsf(two_swapped[i] + p3),
                               p0 - one_swapped[i] + fabsf(two_swapped[i] - p3));
        out[i] = floorf(larger(upright, swapped) * 16384.0f + 0.5f) * (1.0f / 16384.0f);
    }
}

/* Insert a neighbour into a row sorted best first, equals by number, if it belongs there. */
static inline void offer(float value, int64_t neighbour, float *best, int64_t *index, int64_t k)
{
    if (value < best[k - 1] || (value == best[k - 1] && neighbour > index[k - 1]))
        return;
    /* cells overlap: of a neighbour offered twice the higher similarity counts */
    int64_t m = k - 1;
    for (int64_t at = 0; at < k; at++)
        if (index[at] == neighbour) {
            if (value <= best[at])
                return;
            m = at;
        }
    for (; m > 0 && best[m - 1] <= value; m--) {
        if (best[m - 1] == value && index[m - 1] < neighbour)
            break;
        best[m] = best[m - 1];
        index[m] = index[m - 1];
    }
    best[m] = value;
    index[m] = neighbour;
}

/* Offer each column of a block to its rows; `distinct`: never a row to itself. */
CLONES void offer_rows(
    const float *table, const int64_t *rows, const int64_t *columns, float *best, int64_t
    *index, bool distinct, int64_t height, int64_t width, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < height; i++, table += width) {
        float *row = best + rows[i] * k;
        int64_t *row_index = index + rows[i] * k;
        for (int64_t start = 0; start < width; start += 16) {
            int64_t stop = start + 16 < width ? start + 16 : width;
            bool any = false;
            if (stop - start == 16)
                for (int64_t j = 0; j < 16; j++)
                    any |= table[start + j] >= row[k - 1];
            for (int64_t j = start; j < stop && (any || stop - start < 16); j++)
                if (table[j] >= row[k - 1] && !(distinct && columns[j] == rows[i]))
                    offer(table[j], columns[j], row, row_index, k);
        }
    }
}
