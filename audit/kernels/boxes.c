/* Boxes of one picture: pairs that cover each other, overlap, and the area of their union.
 *
 * Boxes are left, top, right, bottom. Picture p has the boxes offsets[p] to offsets[p + 1], sorted
 * by their upper edge: a box is compared with those that begin above its lower edge. */
#include "kernels.h"

enum { MOST_NEXT = 1000 }; /* boxes that a box is compared with */
enum { MOST_PAIRS = 16 };  /* pairs that are kept of one box */
enum { FEW = 2000 };       /* boxes whose union is faster to find without a tree: MOST in Python */

typedef struct {
    double at, box; /* an edge, and its number: left edges first, then right ones */
} edge;

INLINED double larger(double a, double b) { return a > b ? a : b; }
INLINED double smaller(double a, double b) { return a < b ? a : b; }
INLINED double area_of(const double *box) { return (box[2] - box[0]) * (box[3] - box[1]); }

/* Return the area that two boxes have in common, 0 without one. */
INLINED double area_in_common(const double *a, const double *b)
{
    double wide = smaller(a[2], b[2]) - larger(a[0], b[0]);
    double tall = smaller(a[3], b[3]) - larger(a[1], b[1]);
    return wide > 0 && tall > 0 ? wide * tall : 0;
}

/* Say whether picture p has boxes that are there. */
INLINED bool is_within(const int64_t *offsets, int64_t p, int64_t boxes)
{
    return 0 <= offsets[p] && offsets[p] <= offsets[p + 1] && offsets[p + 1] <= boxes;
}

/* Fill how many pairs each box has with those that begin below it, then the pairs themselves, as
 * far as `found` holds them. Return how many boxes reached a limit. The margins leave what rounding
 * decides to the caller. */
int64_t fill_pairs(const double *corners, const int64_t *codes, int64_t *counts,
                   const int64_t *offsets, int64_t *found, int64_t boxes, int64_t rows,
                   int64_t room)
{
    int64_t n = 0, limited = 0;
    for (int64_t p = 0; p + 1 < rows; p++) {
        if (!is_within(offsets, p, boxes))
            continue;
        for (int64_t i = offsets[p]; i < offsets[p + 1]; i++) {
            const double *box = corners + 4 * i;
            int64_t own = 0;
            for (int64_t j = i + 1; j < offsets[p + 1]; j++) {
                const double *next = corners + 4 * j;
                if (next[1] >= box[3])
                    break;
                if (j - i > MOST_NEXT || own == MOST_PAIRS) {
                    limited++;
                    break;
                }
                double both = area_in_common(box, next);
                if (both <= 0)
                    continue;
                double area = area_of(box), other = area_of(next);
                bool half = both >= 0.4999 * (area + other - both);
                if (!half && (codes[i] != codes[j] || both < 0.8999 * smaller(area, other)))
                    continue;
                if (n < room) {
                    found[2 * n] = i;
                    found[2 * n + 1] = j;
                    n++;
                }
                own++;
            }
            counts[i] = own;
        }
    }
    return limited;
}

/* Fill each box's greatest IoU with another one, and whether it touches one (1 or 0). */
static void fill_overlap(const double *boxes, int64_t n, double *overlap, double *touching)
{
    for (int64_t i = 0; i < n; i++)
        touching[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        const double *box = boxes + 4 * i;
        for (int64_t j = i + 1; j < n && boxes[4 * j + 1] < box[3]; j++) {
            if (j - i > MOST_NEXT) { /* none may count as alone that was not compared */
                for (int64_t k = 0; k < n; k++)
                    touching[k] = 1;
                break;
            }
            double both = area_in_common(box, boxes + 4 * j);
            if (both <= 0)
                continue;
            double iou = both / (area_of(box) + area_of(boxes + 4 * j) - both);
            overlap[i] = larger(overlap[i], iou);
            overlap[j] = larger(overlap[j], iou);
            touching[i] = touching[j] = 1;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_edge(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    return x->at != y->at ? by_value(&x->at, &y->at) : by_value(&x->box, &y->box);
}

/* Return the number of the first of n sorted values that is not below `value`. */
static int64_t first_at(const double *sorted, int64_t n, double value)
{
    int64_t low = 0;
    while (low < n) {
        int64_t middle = (low + n) / 2;
        if (sorted[middle] < value)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/* Set what a node of the tree covers: its rows where a box spans it, else its halves'. */
static void recount(const double *times, double *covered, const double *rows, int64_t n_rows,
                    int64_t node, int64_t size)
{
    covered[node] = 0;
    if (times[node] > 0) {
        int level = 0;
        while (node << (level + 1) < 2 * size)
            level++;
        int64_t first = (node << level) - size, last = first + ((int64_t)1 << level);
        last = last < n_rows - 1 ? last : n_rows - 1;
        if (first < last)
            covered[node] = rows[last] - rows[first];
    } else if (node < size) {
        covered[node] = covered[2 * node] + covered[2 * node + 1];
    }
}

/* Return the area of the union of n boxes: left and right edges in order, and in a tree how far y
 * is covered. `scratch` holds 22 n numbers. */
static double union_by_tree(const double *boxes, int64_t n, double *scratch)
{
    double *rows = scratch, *times = rows + 2 * n, *covered = times + 8 * n;
    edge *edges = (edge *)(covered + 8 * n);
    double total = 0, before = 0;
    int64_t size = 1;
    while (size < 2 * n)
        size *= 2;
    for (int64_t i = 0; i < n; i++) {
        rows[i] = boxes[4 * i + 1];
        rows[n + i] = boxes[4 * i + 3];
        edges[i] = (edge){boxes[4 * i], (double)i};
        edges[n + i] = (edge){boxes[4 * i + 2], (double)(n + i)};
    }
    qsort(rows, 2 * n, sizeof *rows, by_value);
    qsort(edges, 2 * n, sizeof *edges, by_edge);
    memset(times, 0, 2 * size * sizeof *times);
    memset(covered, 0, 2 * size * sizeof *covered);
    for (int64_t e = 0; e < 2 * n; e++) {
        int64_t number = (int64_t)edges[e].box;
        const double *box = boxes + 4 * (number % n);
        total += covered[1] * (edges[e].at - before);
        before = edges[e].at;
        int64_t low = first_at(rows, 2 * n, box[1]) + size;
        int64_t high = first_at(rows, 2 * n, box[3]) + size;
        for (int64_t left = low, right = high; left < right; left >>= 1, right >>= 1) {
            if (left & 1) {
                times[left] += number < n ? 1 : -1;
                recount(times, covered, rows, 2 * n, left++, size);
            }
            if (right & 1) {
                times[--right] += number < n ? 1 : -1;
                recount(times, covered, rows, 2 * n, right, size);
            }
        }
        for (int64_t node = low >> 1; node; node >>= 1)
            recount(times, covered, rows, 2 * n, node, size);
        for (int64_t node = (high - 1) >> 1; node; node >>= 1)
            recount(times, covered, rows, 2 * n, node, size);
    }
    return total;
}

/* Return the area of the union of n boxes that are sorted by their upper edge. */
static double area_of_union(const double *boxes, int64_t n, double *scratch)
{
    if (n > FEW)
        return union_by_tree(boxes, n, scratch);
    double total = 0;
    for (int64_t k = 0; k < n; k++) {
        scratch[k] = boxes[4 * k];
        scratch[n + k] = boxes[4 * k + 2];
    }
    for (int64_t i = 1; i < 2 * n; i++) { /* an insertion: a library's sort costs more to begin */
        double value = scratch[i];
        int64_t k = i;
        for (; k > 0 && scratch[k - 1] > value; k--)
            scratch[k] = scratch[k - 1];
        scratch[k] = value;
    }
    for (int64_t e = 0; e + 1 < 2 * n; e++) {
        double low = scratch[e], high = scratch[e + 1], reach = -INFINITY, length = 0;
        for (int64_t k = 0; high > low && k < n; k++) {
            const double *box = boxes + 4 * k;
            if (box[0] <= low && box[2] >= high && box[3] > reach) {
                length += box[3] - larger(box[1], reach);
                reach = box[3];
            }
        }
        if (high > low)
            total += length * (high - low);
    }
    return total;
}

/* Fill the union of each picture (squared units), and of each box its greatest IoU. `scratch` (28,
 * most) is for pictures of `most` boxes. */
void fill_cover(const double *corners, double *cover, const int64_t *offsets, double *overlap,
                double *scratch, int64_t boxes, int64_t pictures, int64_t most)
{
    for (int64_t p = 0; p < pictures; p++) {
        int64_t n = offsets[p + 1] - offsets[p], touched = 0;
        if (!is_within(offsets, p, boxes) || n > most)
            continue;
        const double *first = corners + 4 * offsets[p];
        double *touching = scratch, *some = touching + n, alone = 0;
        fill_overlap(first, n, overlap + offsets[p], touching);
        for (int64_t i = 0; i < n; i++)
            if (touching[i])
                memcpy(some + 4 * touched++, first + 4 * i, 4 * sizeof *some);
            else
                alone += area_of(first + 4 * i);
        cover[p] = alone + area_of_union(some, touched, some + 4 * n);
    }
}
