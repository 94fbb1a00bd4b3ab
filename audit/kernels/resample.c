/* Resampling of luma in Pillow's fixed-point arithmetic. */
#include "kernels.h"

enum { PRECISION = 22 }; /* fractional bits of a weight: PRECISION of audit/picture/hashing.py */
enum { COLUMNS = 64 };   /* columns whose sums stay in registers */

/* Return a sum as a pixel. Lanczos has negative lobes, so sums leave 0..255 beside strong edges. */
INLINED uint8_t clamp_pixel(int32_t sum)
{
    int32_t value = sum >> PRECISION;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

INLINED void reduce_block(const uint8_t *rows, int64_t width, const int32_t *weights, int64_t taps,
                          int columns, uint8_t *out)
{
    int32_t sums[COLUMNS];
    for (int x = 0; x < columns; x++)
        sums[x] = 1 << (PRECISION - 1); /* one half: the shift then rounds */
    for (int64_t tap = 0; tap < taps; tap++, rows += width) {
        const int32_t weight = weights[tap];
        for (int x = 0; x < columns; x++)
            sums[x] += rows[x] * weight;
    }
    for (int x = 0; x < columns; x++)
        out[x] = clamp_pixel(sums[x]);
}

/* Fill rows (target, width) with weighted sums of the rows of luma (height, width).
 * `bounds` (target, 2): first row and number of rows; `weights` (target, taps). */
CLONES
void reduce_rows(const uint8_t *luma, const int64_t *bounds, const int32_t *weights,
                 uint8_t *reduced, int64_t height, int64_t width, int64_t target, int64_t taps)
{
    for (int64_t row = 0; row < target; row++) {
        const int64_t first = bounds[2 * row], count = bounds[2 * row + 1];
        if (first < 0 || count < 0 || count > taps || first > height - count)
            continue;
        const uint8_t *rows = luma + first * width;
        const int32_t *own = weights + row * taps;
        uint8_t *out = reduced + row * width;
        if (width < COLUMNS)
            reduce_block(rows, width, own, count, (int)width, out);
        for (int64_t x = 0; x < width && width >= COLUMNS; x += COLUMNS) {
            int64_t left = x < width - COLUMNS ? x : width - COLUMNS; /* the last two overlap */
            reduce_block(rows + left, width, own, count, COLUMNS, out + left);
        }
    }
}
