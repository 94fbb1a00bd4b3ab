/* The nearest rows of an embedding, from blocks of similarities. */
#include "kernels.h"

/* Put the entries of `block` (rows, columns) among the best k of each row, largest first.
 *
 * Columns are numbered from `start`; those of a row's own group are passed over. Equal values go to
 * the smaller number. */
CLONES
void offer_neighbours(const float *block, const int64_t *groups, const int64_t *owners,
                      int64_t start, int64_t *index, float *similarity, int64_t rows,
                      int64_t columns, int64_t all, int64_t k)
{
    if (k < 1 || start < 0 || start > all - columns)
        return;
    owners += start;
    for (int64_t i = 0; i < rows; i++, block += columns, index += k, similarity += k) {
        float worst = similarity[k - 1];
        for (int64_t j = 0; j < columns; j++) {
            float x = block[j];
            if (!(x > worst) || owners[j] == groups[i])
                continue;
            int64_t place = k - 1;
            for (; place > 0 && similarity[place - 1] < x; place--) {
                similarity[place] = similarity[place - 1];
                index[place] = index[place - 1];
            }
            similarity[place] = x;
            index[place] = start + j;
            worst = similarity[k - 1];
        }
    }
}
