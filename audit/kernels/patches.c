/* Patches of small pictures; the sums of floats may run in any order. */
#include "kernels.h"

/* Fill `out` (n, down, across, side, side, channels) with patches of pictures (n, height, width,
 * channels), `stride` pixels apart: the mean taken off, divided by sqrt(variance + floor). */
CLONES
void cut_patches(const float *pictures, int64_t stride, float floor, float *out, int64_t n,
                 int64_t height, int64_t width, int64_t channels, int64_t down, int64_t across,
                 int64_t side)
{
    const int64_t run = side * channels, length = side * run;
    if (stride < 1 || (down - 1) * stride + side > height || (across - 1) * stride + side > width)
        return;
    for (int64_t i = 0; i < n; i++)
        for (int64_t top = 0; top < down * stride; top += stride)
            for (int64_t left = 0; left < across * stride; left += stride, out += length) {
                const float *corner = pictures + ((i * height + top) * width + left) * channels;
                float total = 0, squares = 0;
                for (int64_t u = 0; u < side; u++)
                    for (int64_t k = 0; k < run; k++) {
                        float x = corner[u * width * channels + k];
                        out[u * run + k] = x;
                        total += x;
                        squares += x * x;
                    }
                float mean = total / length, variance = squares / length - mean * mean;
                float scale = 1 / sqrtf((variance > 0 ? variance : 0) + floor);
                for (int64_t k = 0; k < length; k++)
                    out[k] = (out[k] - mean) * scale;
            }
}

/* Add the activations of patches to the quarter of the picture that they lie in.
 * `products` (n, places, places, words) are patches times centroids, overwritten with distances;
 * `norms` are squared lengths; `out` (n, 2, 2, words). */
CLONES
void pool_codes(float *out, float *products, const float *white, const float *norms, int64_t n,
                int64_t words, int64_t places, int64_t length)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t u = 0; u < places; u++)
            for (int64_t v = 0; v < places; v++, products += words, white += length) {
                float own = 0, total = 0;
                for (int64_t k = 0; k < length; k++)
                    own += white[k] * white[k];
                for (int64_t j = 0; j < words; j++) {
                    float square = own + norms[j] - 2 * products[j];
                    products[j] = sqrtf(square > 0 ? square : 0);
                    total += products[j];
                }
                float mean = total / words;
                float *cell = out + ((i * 2 + 2 * u / places) * 2 + 2 * v / places) * words;
                for (int64_t j = 0; j < words; j++) {
                    float nearer = mean - products[j];
                    cell[j] += nearer > 0 ? nearer : 0;
                }
            }
}
