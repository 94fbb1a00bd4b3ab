/* Facts of drawn shapes: rings of polygons, and run lengths of masks in COCO's forms. */
#include "kernels.h"

enum { FACTS = 6 };         /* area, x, y, width, height, crossing pairs of sides */
enum { MOST_SIDES = 3000 }; /* of a ring whose crossings are counted */

typedef struct {
    double x, y;
} point;

INLINED double larger(double a, double b) { return a > b ? a : b; }
INLINED double smaller(double a, double b) { return a < b ? a : b; }

/* Return twice the area of a triangle, positive where its corners turn left. */
INLINED double turn(point a, point b, point c)
{
    return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

/* Count pairs of sides of one ring that cross properly: each divides the other. */
static int64_t count_crossings(const point *ring, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        point a = ring[i], b = ring[(i + 1) % n];
        double low_x = smaller(a.x, b.x), high_x = larger(a.x, b.x);
        double low_y = smaller(a.y, b.y), high_y = larger(a.y, b.y);
        for (int64_t k = i + 2; k < n; k++) {
            int64_t m = k + 1 < n ? k + 1 : 0;
            if (m == i)
                continue;
            point c = ring[k], d = ring[m];
            if (larger(c.x, d.x) < low_x || smaller(c.x, d.x) > high_x)
                continue;
            if (larger(c.y, d.y) < low_y || smaller(c.y, d.y) > high_y)
                continue;
            count += turn(a, b, c) * turn(a, b, d) < 0 && turn(c, d, a) * turn(c, d, b) < 0;
        }
    }
    return count;
}

/* Fill the facts of rings, NaN where they are not known; ring r is flat[offsets[r]:offsets[r + 1]].
 * An extent with a coordinate that is no number is none. */
void ring_facts(const double *flat, double *facts, const int64_t *offsets, int64_t numbers,
                int64_t rings)
{
    for (int64_t r = 0; r < rings; r++, facts += FACTS) {
        for (int k = 0; k < FACTS; k++)
            facts[k] = NAN;
        if (offsets[r] < 0 || offsets[r] > offsets[r + 1] || offsets[r + 1] > numbers)
            continue;
        const point *ring = (const point *)(flat + offsets[r]);
        int64_t n = (offsets[r + 1] - offsets[r]) / 2;
        if (n == 0)
            continue;
        double twice = 0;
        bool finite = true;
        point low = ring[0], high = ring[0];
        for (int64_t i = 0; i < n; i++) {
            point a = ring[i], b = ring[i + 1 < n ? i + 1 : 0];
            twice += a.x * b.y - b.x * a.y;
            finite = finite && isfinite(a.x) && isfinite(a.y);
            low.x = a.x < low.x || isnan(a.x) ? a.x : low.x;
            low.y = a.y < low.y || isnan(a.y) ? a.y : low.y;
            high.x = a.x > high.x || isnan(a.x) ? a.x : high.x;
            high.y = a.y > high.y || isnan(a.y) ? a.y : high.y;
        }
        facts[0] = fabs(twice) / 2;
        facts[1] = low.x;
        facts[2] = low.y;
        facts[3] = high.x - low.x;
        facts[4] = high.y - low.y;
        if (finite && n <= MOST_SIDES)
            facts[5] = (double)count_crossings(ring, n);
    }
}

/* Read COCO's short form of run lengths: 5 bits a character, differences to the run before the
 * last. Return how many there are, -1 where the text is none. */
int64_t unpack_runs(const uint8_t *text, int64_t *runs, int64_t length)
{
    int64_t n = 0, at = 0;
    while (at < length) {
        uint64_t value = 0;
        for (int shift = 0;; shift += 5) {
            if (at >= length || shift > 55 || text[at] < 48 || text[at] > 48 + 63)
                return -1;
            uint64_t c = text[at++] - 48;
            value |= (c & 31) << shift;
            if (!(c & 32)) {
                if (c & 16)
                    value |= ~UINT64_C(0) << (shift + 5);
                break;
            }
        }
        runs[n] = (int64_t)(value + (n > 2 ? (uint64_t)runs[n - 2] : 0));
        n++;
    }
    return n;
}

/* Return a / b rounded down. */
INLINED int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Fill area, x, y, width, height of a mask, NaN for the extent of an empty one; runs go down the
 * columns, background first. */
void run_extent(const int64_t *runs, int64_t height, double *box, int64_t n)
{
    const int64_t far = INT64_C(1) << 60;
    int64_t at = 0, area = 0, low_x = far, low_y = far, high_x = -1, high_y = -1;
    for (int64_t i = 0; height > 0 && i < n; i++) {
        if (i % 2 == 1 && runs[i] > 0) {
            int64_t end = (int64_t)((uint64_t)at + (uint64_t)runs[i] - 1);
            int64_t first = floor_divide(at, height), last = floor_divide(end, height);
            int64_t top = 0, bottom = height - 1;
            if (first == last) {
                top = at - first * height;
                bottom = end - last * height;
            }
            area = (int64_t)((uint64_t)area + (uint64_t)runs[i]);
            low_x = first < low_x ? first : low_x;
            high_x = last > high_x ? last : high_x;
            low_y = top < low_y ? top : low_y;
            high_y = bottom > high_y ? bottom : high_y;
        }
        at = (int64_t)((uint64_t)at + (uint64_t)runs[i]);
    }
    box[0] = (double)area;
    box[1] = area ? (double)low_x : NAN;
    box[2] = area ? (double)low_y : NAN;
    box[3] = area ? (double)(high_x - low_x + 1) : NAN;
    box[4] = area ? (double)(high_y - low_y + 1) : NAN;
}
