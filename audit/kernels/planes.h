/* Square planes of 32 (fine) or 16 (coarse) pixels: orient, warp, and fit one to another.
 * Partial sums are in a fixed order, so that every processor gives the same bits. Coordinates of a
 * map go from -1 to 1; see audit/neighbors/verification.py. */
#include "kernels.h"

enum { FINE = 32, FINE_SIZE = FINE * FINE, COARSE = 16, COARSE_SIZE = COARSE * COARSE, LANES = 4 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t places __attribute__((vector_size(LANES * sizeof(int32_t))));

/* A template, the image to be laid over it, and the planes of one step of the search. */
typedef struct {
    float template[FINE_SIZE], across[FINE_SIZE], down[FINE_SIZE];
    lanes corners[FINE_SIZE]; /* a pixel, its steps across and down, the step of the step */
    float warped[FINE_SIZE], valid[FINE_SIZE], weight[FINE_SIZE], error[FINE_SIZE];
} planes;

static inline lanes load(const float *from)
{
    lanes values;
    memcpy(&values, from, sizeof values);
    return values;
}

static inline void store(float *to, lanes values)
{
    memcpy(to, &values, sizeof values);
}

/* Return a0 b0 a1 b1, and a2 b2 a3 b3. */
static inline lanes low_halves(lanes a, lanes b)
{
#ifdef __clang__
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#else
    return __builtin_shuffle(a, b, (places){0, 4, 1, 5});
#endif
}

static inline lanes high_halves(lanes a, lanes b)
{
#ifdef __clang__
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#else
    return __builtin_shuffle(a, b, (places){2, 6, 3, 7});
#endif
}

static inline float sum(lanes values)
{
    return (values[0] + values[2]) + (values[1] + values[3]);
}

static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Clamp values to 0 .. highest; NaN becomes 0. A branch would be mispredicted at every edge. */
static inline lanes clamp(lanes values, float highest)
{
    places positive = (places)values & (values > 0.0f), low = (lanes)positive < highest;
    return (lanes)((positive & low) | ((places)(highest + (lanes){0}) & ~low));
}

/* Return how far four pixels of a row are right of the centre. */
static inline lanes offsets(int x, const int n)
{
    return (lanes){0.5f, 1.5f, 2.5f, 3.5f} + (x - 0.5f * n);
}

/* Return the offset in a plane of the pixel that orientation k moves to (y, x). */
static inline int source_offset(int y, int x, const int n, int k)
{
    int row = k & 4 ? x : y, column = k & 4 ? y : x;
    if (k & 1)
        column = n - 1 - column;
    if (k & 2)
        row = n - 1 - row;
    return row * n + column;
}

static inline void to_floats(const uint8_t *source, float *out)
{
    for (int k = 0; k < FINE_SIZE; k++)
        out[k] = source[k];
}

/* Copy a plane in orientation k. */
static inline void orient(const float *source, int k, float *out, const int n)
{
    if (k == 0) {
        memcpy(out, source, n * n * sizeof(float));
        return;
    }
    int start = source_offset(0, 0, n, k);
    int across = source_offset(0, 1, n, k) - start, down = source_offset(1, 0, n, k) - start;
    for (int y = 0; y < n; y++)
        for (int x = 0; x < n; x++)
            out[y * n + x] = source[start + y * down + x * across];
}

/* Average 2 x 2 pixels of a fine plane. */
static inline void halve(const float *full, float *half)
{
    for (int y = 0; y < COARSE; y++) {
        const float *above = full + 2 * y * FINE, *below = above + FINE;
        for (int x = 0; x < COARSE; x++)
            half[y * COARSE + x] = 0.25f * ((above[2 * x] + above[2 * x + 1])
                                            + (below[2 * x] + below[2 * x + 1]));
    }
}

/* Smooth a fine plane with the 3 x 3 binomial, edges repeated: the fit takes it for linear. */
static inline void soften(const float *source, float *out)
{
    enum { n = FINE };
    for (int y = 0; y < n; y++) {
        const float *at = source + y * n, *above = y > 0 ? at - n : at;
        const float *below = y < n - 1 ? at + n : at;
        float line[n], *to = out + y * n;
        for (int x = 0; x < n; x++)
            line[x] = above[x] + 2.0f * at[x] + below[x];
        for (int x = 1; x < n - 1; x++)
            to[x] = (line[x - 1] + 2.0f * line[x] + line[x + 1]) * 0.0625f;
        to[0] = (3.0f * line[0] + line[1]) * 0.0625f;
        to[n - 1] = (line[n - 2] + 3.0f * line[n - 1]) * 0.0625f;
    }
}

/* Prepare a plane for `sample`: one load then brings a pixel and its three neighbours. */
static inline void find_corners(const float *plane, lanes *corners, const int n)
{
    for (int k = 0; k < n * n - n - 1; k++) {
        float across = plane[k + 1] - plane[k], below = plane[k + n + 1] - plane[k + n];
        corners[k] = (lanes){plane[k], across, plane[k + n] - plane[k], below - across};
    }
}

/* Warp the image to the template's grid by the map p; return how many pixels are `valid`. */
static inline int sample(planes *s, const double *p, const int n)
{
    const float half = 0.5f * n, last = n - 1.001f, edge = n - 0.5f;
    const float xx = (float)(1.0 + p[0]), xy = (float)p[1], x0 = (float)(p[2] + 1.0);
    const float yx = (float)p[3], yy = (float)(1.0 + p[4]), y0 = (float)(p[5] + 1.0);
    places count = {0};
    for (int y = 0; y < n; y++) {
        float ty = y + 0.5f - half;
        float u0 = xy * ty + x0 * half - 0.5f, v0 = yy * ty + y0 * half - 0.5f;
        for (int x = 0; x < n; x += LANES) {
            lanes tx = offsets(x, n), u = u0 + xx * tx, v = v0 + yx * tx;
            places inside = (u > -0.5f) & (v > -0.5f) & (u < edge) & (v < edge);
            u = clamp(u, last);
            v = clamp(v, last);
            places column = __builtin_convertvector(u, places);
            places row = __builtin_convertvector(v, places), offset = row * n + column;
            lanes right = u - __builtin_convertvector(column, lanes);
            lanes down = v - __builtin_convertvector(row, lanes);
            lanes valid = __builtin_convertvector(-inside, lanes);
            /* turn the corners of four pixels into four levels, four steps across, and so on */
            lanes one = s->corners[offset[0]], two = s->corners[offset[1]];
            lanes three = s->corners[offset[2]], four = s->corners[offset[3]];
            lanes even = low_halves(one, three), odd = low_halves(two, four);
            lanes level = low_halves(even, odd) + right * high_halves(even, odd);
            even = high_halves(one, three), odd = high_halves(two, four);
            lanes below = low_halves(even, odd) + right * high_halves(even, odd);
            store(s->warped + y * n + x, valid * (level + down * below));
            store(s->valid + y * n + x, valid);
            count -= inside;
        }
    }
    return count[0] + count[1] + count[2] + count[3];
}

/* Fill the gradients of the template in units of half its side; one-sided at the edges. */
static inline void find_gradients(planes *s, const int n)
{
    const float half = 0.5f * n, *t = s->template;
    for (int y = 0; y < n; y++) {
        const float *at = t + y * n;
        float *across = s->across + y * n;
        for (int x = 1; x < n - 1; x++)
            across[x] = (at[x + 1] - at[x - 1]) * (0.5f * half);
        across[0] = (at[1] - at[0]) * half;
        across[n - 1] = (at[n - 1] - at[n - 2]) * half;
    }
    for (int k = n; k < n * n - n; k++)
        s->down[k] = (t[k + n] - t[k - n]) * (0.5f * half);
    for (int x = 0, low = n * n - n; x < n; x++, low++) {
        s->down[x] = (t[x + n] - t[x]) * half;
        s->down[low] = (t[low] - t[low - n]) * half;
    }
}

/* Add a product of two gradients times x*x, x*y, x, y*y, y, 1; `columns` has it times 1, y, y*y. */
static inline void add_squares(lanes *sums, lanes x, const lanes columns[3])
{
    sums[0] += columns[0] * x * x;
    sums[1] += columns[1] * x;
    sums[2] += columns[0] * x;
    sums[3] += columns[2];
    sums[4] += columns[1];
    sums[5] += columns[0];
}

/* Add a product with one gradient times x, y, 1; `columns` has it times 1, y. */
static inline void add_line(lanes *sums, lanes x, const lanes columns[2])
{
    sums[0] += columns[0] * x;
    sums[1] += columns[1];
    sums[2] += columns[0];
}

/* Fill the weighted normal equations: the lower triangle and the right side.
 * Unknowns are the map, a gain and a bias; the steepest-descent images are each gradient times x, y
 * and 1, the template, and 1 [Baker and Matthews, IJCV 2004]. */
static inline void fill_equations(const planes *s, double matrix[8][8], double vector[8],
                                  const int n)
{
    enum { AA = 0, AD = 6, DD = 12, AT = 18, DT = 21, A = 24, D = 27, AE = 30, DE = 33 };
    enum { TE = 36, E, TT, T, ONE, SUMS };
    lanes sums[SUMS] = {{0}};
    for (int c = 0; c < n; c += LANES) {
        lanes x = offsets(c, n) / (0.5f * n), aa[3] = {{0}}, ad[3] = {{0}}, dd[3] = {{0}};
        lanes at[2] = {{0}}, dt[2] = {{0}}, a1[2] = {{0}}, d1[2] = {{0}}, ae[2] = {{0}};
        lanes de[2] = {{0}}, te = {0}, e1 = {0}, tt = {0}, t1 = {0}, ones = {0};
        for (int r = 0; r < n; r++) {
            int k = r * n + c;
            float y = (r + 0.5f) / (0.5f * n) - 1.0f;
            lanes a = load(s->across + k), d = load(s->down + k), wa = load(s->weight + k) * a;
            lanes aa_r = wa * a, ad_r = wa * d, dd_r = load(s->weight + k) * d * d;
            aa[0] += aa_r, aa[1] += aa_r * y, aa[2] += aa_r * (y * y);
            ad[0] += ad_r, ad[1] += ad_r * y, ad[2] += ad_r * (y * y);
            dd[0] += dd_r, dd[1] += dd_r * y, dd[2] += dd_r * (y * y);
        }
        for (int r = 0; r < n; r++) {
            int k = r * n + c;
            float y = (r + 0.5f) / (0.5f * n) - 1.0f;
            lanes w = load(s->weight + k), a = w * load(s->across + k), d = w * load(s->down + k);
            lanes t = load(s->template + k), at_r = a * t, dt_r = d * t;
            a1[0] += a, d1[0] += d, at[0] += at_r, dt[0] += dt_r;
            a1[1] += a * y, d1[1] += d * y, at[1] += at_r * y, dt[1] += dt_r * y;
        }
        for (int r = 0; r < n; r++) {
            int k = r * n + c;
            float y = (r + 0.5f) / (0.5f * n) - 1.0f;
            lanes w = load(s->weight + k), e = w * load(s->error + k), t = load(s->template + k);
            lanes ae_r = load(s->across + k) * e, de_r = load(s->down + k) * e;
            ae[0] += ae_r, ae[1] += ae_r * y, de[0] += de_r, de[1] += de_r * y;
            te += t * e, e1 += e, tt += w * t * t, t1 += w * t, ones += w;
        }
        add_squares(sums + AA, x, aa);
        add_squares(sums + AD, x, ad);
        add_squares(sums + DD, x, dd);
        add_line(sums + AT, x, at);
        add_line(sums + DT, x, dt);
        add_line(sums + A, x, a1);
        add_line(sums + D, x, d1);
        add_line(sums + AE, x, ae);
        add_line(sums + DE, x, de);
        sums[TE] += te, sums[E] += e1, sums[TT] += tt, sums[T] += t1, sums[ONE] += ones;
    }
    static const int8_t triangle[36] = {
        AA,
        AA + 1, AA + 3,
        AA + 2, AA + 4, AA + 5,
        AD, AD + 1, AD + 2, DD,
        AD + 1, AD + 3, AD + 4, DD + 1, DD + 3,
        AD + 2, AD + 4, AD + 5, DD + 2, DD + 4, DD + 5,
        AT, AT + 1, AT + 2, DT, DT + 1, DT + 2, TT,
        A, A + 1, A + 2, D, D + 1, D + 2, T, ONE};
    for (int i = 0, k = 0; i < 8; i++) {
        for (int j = 0; j <= i; j++)
            matrix[i][j] = sum(sums[triangle[k++]]);
        vector[i] = sum(sums[AE + i]);
    }
}

/* Replace the map p by p after the inverse of the small map d; return the largest change, or -1
 * where d collapses the plane. */
static inline double compose_inverse(double *p, const double *d)
{
    double a = 1.0 + d[0], b = d[1], c = d[3], e = 1.0 + d[4], det = a * e - b * c;
    if (fabs(det) < 0.2)
        return -1.0;
    double ia = e / det, ib = -b / det, ic = -c / det, ie = a / det;
    double across = -(ia * d[2] + ib * d[5]), down = -(ic * d[2] + ie * d[5]);
    double m00 = 1.0 + p[0], m01 = p[1], m10 = p[3], m11 = 1.0 + p[4], change = 0.0;
    p[2] += m00 * across + m01 * down;
    p[5] += m10 * across + m11 * down;
    p[0] = m00 * ia + m01 * ic - 1.0;
    p[1] = m00 * ib + m01 * ie;
    p[3] = m10 * ia + m11 * ic;
    p[4] = m10 * ib + m11 * ie - 1.0;
    for (int k = 0; k < 6; k++)
        change = larger(change, fabs(d[k]));
    return change;
}

/* Move the map p one step of at most 0.3; return the change, or -1 where the search is lost: the
 * step collapses the plane or the area left 0.3 .. 3. */
static inline double move(double *p, double *step)
{
    double largest = 0.0;
    for (int k = 0; k < 6; k++)
        largest = larger(largest, fabs(step[k]));
    for (int k = 0; k < 6 && largest > 0.3; k++)
        step[k] *= 0.3 / largest;
    double change = compose_inverse(p, step);
    double area = (1.0 + p[0]) * (1.0 + p[4]) - p[1] * p[3];
    return area < 0.3 || area > 3.0 ? -1.0 : change;
}
