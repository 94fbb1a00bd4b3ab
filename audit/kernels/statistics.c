/* Statistics of feature pictures: colours, sharpness, noise and border, in whole numbers. */
#include "kernels.h"

enum { BLOCK = 1024 };     /* pixels that are worked on at a time: they stay in the nearest cache */
enum { RIPPLES = 1024 };   /* levels of the second difference that are counted apart */
enum { NUMBERS = 13 };     /* columns of `numbers`: NUMBERS of audit/picture/statistics.py */

/* Sums of a picture's red, green and blue, and of its saturation times 2^32. */
typedef struct {
    int64_t red, green, blue, saturation;
} colour_sums;

/* Return the median of a histogram of integers, interpolated within value +- 1/2. */
INLINED double median_of(const int64_t *counts, int64_t length, int64_t total)
{
    int64_t below = 0;
    for (int64_t value = 0; value < length; value++) {
        if (2 * (below + counts[value]) >= total) {
            double inside = ((double)total / 2 - below) / (counts[value] > 1 ? counts[value] : 1);
            double median = value - 0.5 + inside;
            return median > 0 ? median : 0;
        }
        below += counts[value];
    }
    return (double)length;
}

/* Fill luma (Pillow's L) and the histograms of luma and of channel spread of a picture.
 * Four histograms in turn, because increments of one counter wait for each other. */
INLINED colour_sums count_colours(const uint8_t *rgb, int64_t pixels, uint8_t *luma,
                                  int64_t *counts, int64_t *spreads)
{
    int32_t grey_counts[4][256] = {{0}}, spread_counts[4][256] = {{0}};
    int64_t by_high[4][256] = {{0}};
    uint8_t red[BLOCK], green[BLOCK], blue[BLOCK], high[BLOCK], spread[BLOCK];
    colour_sums sums = {0, 0, 0, 0};
    for (int64_t start = 0; start < pixels; start += BLOCK, rgb += 3 * BLOCK, luma += BLOCK) {
        int length = pixels - start < BLOCK ? (int)(pixels - start) : BLOCK;
        int32_t reds = 0, greens = 0, blues = 0;
        for (int x = 0; x < length; x++) {
            red[x] = rgb[3 * x];
            green[x] = rgb[3 * x + 1];
            blue[x] = rgb[3 * x + 2];
        }
        for (int x = 0; x < length; x++) {
            uint32_t r = red[x], g = green[x], b = blue[x];
            reds += r;
            greens += g;
            blues += b;
            /* the weights of ITU-R BT.601 times 2^16, rounded */
            luma[x] = (19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16;
        }
        for (int x = 0; x < length; x++) {
            uint8_t most = red[x] > green[x] ? red[x] : green[x];
            uint8_t least = red[x] < green[x] ? red[x] : green[x];
            high[x] = most > blue[x] ? most : blue[x];
            spread[x] = high[x] - (least < blue[x] ? least : blue[x]);
        }
        for (int x = 0; x < length; x++) {
            grey_counts[x & 3][luma[x]]++;
            spread_counts[x & 3][spread[x]]++;
            by_high[x & 3][high[x]] += spread[x];
        }
        sums.red += reds;
        sums.green += greens;
        sums.blue += blues;
    }
    for (int64_t value = 0; value < 256; value++) {
        int64_t weight = 0;
        counts[value] = spreads[value] = 0;
        for (int part = 0; part < 4; part++) {
            counts[value] += grey_counts[part][value];
            spreads[value] += spread_counts[part][value];
            weight += by_high[part][value];
        }
        if (value) /* a black pixel has no saturation */
            sums.saturation += weight * (((INT64_C(1) << 32) + value / 2) / value);
    }
    return sums;
}

/* Fill a row of sums over 3x3 pixels, 0 at both ends; `columns` holds the sums of three rows. */
INLINED void sum_nine(const uint8_t *above, int64_t width, int16_t *columns, int16_t *nine)
{
    const uint8_t *here = above + width, *below = here + width;
    for (int64_t x = 0; x < width; x++)
        columns[x] = (int16_t)(above[x] + here[x] + below[x]);
    nine[0] = nine[width - 1] = 0;
    for (int64_t x = 1; x < width - 1; x++)
        nine[x] = (int16_t)(columns[x - 1] + columns[x] + columns[x + 1]);
}

/* Add |second difference in x and y| of the row after `above` to four histograms in turn. */
INLINED void count_ripples(const uint8_t *above, int64_t width, int16_t *ripples,
                           int32_t second[4][RIPPLES])
{
    const uint8_t *here = above + width, *below = here + width;
    for (int64_t x = 1; x < width - 2; x++) {
        int corners = above[x - 1] + above[x + 1] + below[x - 1] + below[x + 1];
        int sides = above[x] + here[x - 1] + here[x + 1] + below[x];
        int ripple = abs(corners - 2 * sides + 4 * here[x]);
        ripples[x] = (int16_t)(ripple < RIPPLES ? ripple : RIPPLES - 1);
    }
    for (int64_t x = 1; x < width - 2; x++)
        second[x & 3][ripples[x]]++;
}

/* Fill sharpness (-1 where the picture is flat), edge density and noise.
 * Sharpness: after Crete et al., The blur effect, SPIE 6492, 2007, times 9. Noise: the median of
 * |second difference| / (6 * 0.6745), after Immerkaer, Fast noise variance estimation, CVIU 64(2),
 * 1996; 36 is the squared norm of the mask, 0.6745 the median of |x| of a standard normal. */
INLINED void fill_structure(const uint8_t *luma, int64_t height, int64_t width, int16_t *scratch,
                            double *out)
{
    int16_t *columns = scratch, *ripples = scratch + width;
    int16_t *mean = scratch + 2 * width, *mean_below = scratch + 3 * width;
    int64_t before = 0, removed = 0, edges = 0, counts[RIPPLES], total = 0;
    int32_t second[4][RIPPLES] = {{0}};
    out[0] = -1;
    out[1] = out[2] = 0;
    if (height < 4 || width < 4)
        return;
    sum_nine(luma, width, columns, mean_below);
    for (int64_t y = 1; y < height - 2; y++) {
        const uint8_t *here = luma + y * width, *below = here + width;
        int16_t *done = mean;
        mean = mean_below;
        mean_below = done;
        sum_nine(here, width, columns, mean_below);
        /* at most 4590 a pixel: 32 bits are enough for 400,000 */
        int32_t row_before = 0, row_removed = 0, row_edges = 0;
        for (int64_t x = 1; x < width - 2; x++) {
            int across = 9 * abs(here[x] - here[x + 1]), down = 9 * abs(here[x] - below[x]);
            int across_left = across - abs(mean[x] - mean[x + 1]);
            int down_left = down - abs(mean[x] - mean_below[x]);
            row_before += across + down;
            row_removed += (across_left > 0 ? across_left : 0) + (down_left > 0 ? down_left : 0);
            row_edges += (across > down ? across : down) > 9 * 16; /* over 1/16 of the range */
        }
        before += row_before;
        removed += row_removed;
        edges += row_edges;
        if (y % 2)
            count_ripples(here - width, width, ripples, second);
    }
    for (int value = 0; value < RIPPLES; value++) {
        counts[value] = (int64_t)second[0][value] + second[1][value] + second[2][value];
        counts[value] += second[3][value];
        total += counts[value];
    }
    if (before)
        out[0] = (double)removed / before;
    out[1] = (double)edges / ((height - 3) * (width - 3));
    out[2] = median_of(counts, RIPPLES, total) / (6 * 0.6745 * 255);
}

/* Fill mean red, green, blue and the spread of luma of the outermost 2 px all around. */
INLINED void fill_border(const uint8_t *rgb, const uint8_t *luma, int64_t height, int64_t width,
                         double *out)
{
    int64_t red = 0, green = 0, blue = 0, sum = 0, squares = 0, count = 0;
    for (int64_t y = 0; y < height; y++) {
        bool inner = 2 <= y && y < height - 2 && width > 4;
        for (int64_t at = 0; at < (inner ? 4 : width); at++) {
            int64_t pixel = y * width + (inner && at > 1 ? width - 4 + at : at);
            int64_t grey = luma[pixel];
            red += rgb[3 * pixel];
            green += rgb[3 * pixel + 1];
            blue += rgb[3 * pixel + 2];
            sum += grey;
            squares += grey * grey;
            count++;
        }
    }
    double mean = (double)sum / count, variance = (double)squares / count - mean * mean;
    double scale = 255.0 * count;
    out[0] = red / scale;
    out[1] = green / scale;
    out[2] = blue / scale;
    out[3] = sqrt(variance > 0 ? variance : 0) / 255;
}

/* Fill luma, numbers and both histograms of n pictures (n, height, width, 3). */
CLONES
void fill_statistics(const uint8_t *stack, uint8_t *luma, double *numbers, int64_t *counts,
                     int64_t *spreads, int16_t *scratch, int64_t n, int64_t height, int64_t width)
{
    int64_t pixels = height * width;
    for (int64_t at = 0; pixels && at < n; at++) {
        const uint8_t *rgb = stack + 3 * at * pixels;
        uint8_t *grey = luma + at * pixels;
        int64_t *histogram = counts + 256 * at;
        double *out = numbers + NUMBERS * at, mean = 0, square = 0;
        colour_sums sums = count_colours(rgb, pixels, grey, histogram, spreads + 256 * at);
        for (int64_t value = 0; value < 256; value++) {
            mean += (double)(value * histogram[value]);
            square += (double)(value * value * histogram[value]);
        }
        mean /= pixels;
        double variance = square / pixels - mean * mean;
        out[0] = mean / 255;
        out[1] = sqrt(variance > 0 ? variance : 0) / 255;
        out[2] = sums.saturation / (pixels * 4294967296.0);
        out[3] = (double)sums.red / pixels / 255;
        out[4] = (double)sums.green / pixels / 255;
        out[5] = (double)sums.blue / pixels / 255;
        fill_structure(grey, height, width, scratch, out + 6);
        fill_border(rgb, grey, height, width, out + 9);
    }
}
