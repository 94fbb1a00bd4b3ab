/* The Hamming search: distances of 64-bit codes. A full buffer is not written, only counted. */
#include "kernels.h"

/* Where the hits of task t go: first, second and distance from edges[t][0] to edges[t][1]. */
typedef struct {
    const int64_t *edges;
    int32_t *first, *second;
    uint8_t *distance;
    int64_t *count;
} hits;

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int distance_of(uint64_t a, uint64_t b)
{
    return __builtin_popcountll(a ^ b);
}

static inline void add_hit(const hits *out, int64_t t, int64_t first, int64_t second, int distance)
{
    int64_t at = out->edges[2 * t] + out->count[t]++;
    if (at >= out->edges[2 * t + 1])
        return;
    out->first[at] = (int32_t)first;
    out->second[at] = (int32_t)second;
    out->distance[at] = (uint8_t)distance;
}

/* Return the least distance of four codes to a stretch of codes. */
static inline uint64_t find_least(const uint64_t four[4], const uint64_t *codes, int64_t n)
{
    uint64_t least[4] = {64, 64, 64, 64};
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < 4; i++) {
            uint64_t distance = (uint64_t)distance_of(four[i], codes[j]);
            least[i] = distance < least[i] ? distance : least[i];
        }
    uint64_t low = least[0] < least[1] ? least[0] : least[1];
    uint64_t high = least[2] < least[3] ? least[2] : least[3];
    return low < high ? low : high;
}

#if defined(__x86_64__) && !defined(WITHOUT_CLONES)
/* The same, eight codes at a time, for processors that count bits in vectors. */
__attribute__((target("avx512vpopcntdq"), flatten, noinline)) static uint64_t
find_least_in_vectors(const uint64_t four[4], const uint64_t *codes, int64_t n)
{
    return find_least(four, codes, n);
}
#else
#define find_least_in_vectors find_least
#define __builtin_cpu_supports(feature) 0
#endif

/* Compare rows bounds[task] .. bounds[task + 1] with all others, or with `later` ones only. */
CLONES void compare_rows(
    const uint64_t *codes, const uint64_t *others, bool later, int64_t radius, const int64_t
    *bounds, const int64_t *tasks, const int64_t *edges, int32_t *first, int32_t *second,
    uint8_t *distance, int64_t *count, int64_t n_codes, int64_t n_others, int64_t n_bounds,
    int64_t n_tasks)
{
    const hits out = {edges, first, second, distance, count};
    const bool in_vectors = __builtin_cpu_supports("avx512vpopcntdq");
    for (int64_t t = 0; t < n_tasks; t++) {
        int64_t end = bounds[tasks[t] + 1];
        count[t] = 0;
        for (int64_t row = bounds[tasks[t]]; row < end; row += 4) {
            int64_t last = smaller(row + 4, end);
            uint64_t four[4];
            for (int64_t i = 0; i < 4; i++)
                four[i] = codes[smaller(row + i, last - 1)];
            for (int64_t start = later ? row + 1 : 0; start < n_others; start += 64) {
                int64_t stop = smaller(start + 64, n_others);
                const uint64_t *part = others + start;
                uint64_t least = in_vectors ? find_least_in_vectors(four, part, stop - start)
                                            : find_least(four, part, stop - start);
                if (least > (uint64_t)radius)
                    continue;
                for (int64_t i = row; i < last; i++)
                    for (int64_t j = later && i >= start ? i + 1 : start; j < stop; j++) {
                        int apart = distance_of(codes[i], others[j]);
                        if (apart <= radius)
                            add_hit(&out, t, i, j, apart);
                    }
            }
        }
    }
}

/* Compare buckets bounds[task] .. bounds[task + 1] of one chunk of bits with buckets that differ by
 * a mask. The first chunk in which a pair agrees reports it. */
CLONES void compare_buckets(
    int64_t radius, const uint64_t *shifts, const uint64_t *fields, const int64_t *reach, const
    uint64_t *codes, const int32_t *rows, const int32_t *starts, const int64_t *masks, int64_t
    chunk, const int64_t *bounds, const int64_t *tasks, const int64_t *edges, int32_t *first,
    int32_t *second, uint8_t *distance, int64_t *count, int64_t n_chunks, int64_t n_codes,
    int64_t n_starts, int64_t n_masks, int64_t n_bounds, int64_t n_tasks)
{
    const hits out = {edges, first, second, distance, count};
    for (int64_t t = 0; t < n_tasks; t++) {
        count[t] = 0;
        for (int64_t u = bounds[tasks[t]]; u < bounds[tasks[t] + 1]; u++)
            for (int64_t m = 0; m < n_masks && starts[u] < starts[u + 1]; m++) {
                int64_t v = u ^ masks[m];
                if (v < u)
                    continue;
                for (int64_t i = starts[u]; i < starts[u + 1]; i++)
                    for (int64_t j = v == u ? i + 1 : starts[v]; j < starts[v + 1]; j++) {
                        int apart = distance_of(codes[i], codes[j]);
                        bool earlier = apart > radius;
                        for (int64_t c = 0; c < chunk && !earlier; c++) {
                            uint64_t part = (codes[i] ^ codes[j]) >> shifts[c] & fields[c];
                            earlier = __builtin_popcountll(part) <= reach[c];
                        }
                        if (!earlier)
                            add_hit(&out, t, smaller(rows[i], rows[j]),
                                    rows[i] < rows[j] ? rows[j] : rows[i], apart);
                    }
            }
    }
}
