/* The outline of a JSON document: where its values begin and end, with nothing decoded. */
#include "kernels.h"

enum { OK, TRUNCATED, WRONG, DEEP, MORE }; /* states of a document: those of coco.py */
enum { DEPTH = 100 };                      /* a deeper nesting is a mistake or an attack */
enum { KEYS = 64 };                        /* keys of one element that are compared */

INLINED bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Say whether a number or a word ends before this character. */
INLINED bool ends_word(uint8_t c)
{
    return c == ',' || c == ']' || c == '}' || c == ':' || c == '"' || c == '{' || c == '[';
}

/* Return the first position from `at` on that is no white space, `n` without one. */
int64_t skip_space(const uint8_t *text, int64_t at, int64_t n)
{
    while (0 <= at && at < n && is_space(text[at]))
        at++;
    return at;
}

/* Return the position after the string that begins at `at`, -1 if it does not end. */
int64_t skip_string(const uint8_t *text, int64_t at, int64_t n)
{
    for (at++; 0 < at && at < n; at++) {
        if (text[at] == '\\')
            at++;
        else if (text[at] == '"')
            return at + 1;
    }
    return -1;
}

static uint64_t hash_string(const uint8_t *text, int64_t start, int64_t end)
{
    uint64_t value = UINT64_C(1469598103934665603);
    for (int64_t at = start; at < end; at++)
        value = (value ^ text[at]) * UINT64_C(1099511628211);
    return value;
}

/* Skip the object or list at `*at`; return a status. `repeats`, where it is wanted, becomes true if
 * a key stands twice in the object itself. */
static int skip_nested(const uint8_t *text, int64_t *at, int64_t n, bool *repeats)
{
    uint64_t seen[KEYS];
    int depth = 0, keys = 0;
    bool expects_key = false;
    for (int64_t here = *at; here < n;) {
        const uint8_t c = text[here];
        *at = here;
        if (c == '"') {
            int64_t end = skip_string(text, here, n);
            if (end < 0)
                break;
            if (repeats && depth == 1 && expects_key && keys < KEYS) {
                seen[keys] = hash_string(text, here, end);
                for (int k = 0; k < keys; k++)
                    *repeats = *repeats || seen[k] == seen[keys];
                keys++;
            }
            expects_key = false;
            here = end;
            continue;
        }
        if (c == '{' || c == '[') {
            if (++depth > DEPTH)
                return DEEP;
            expects_key = c == '{';
        } else if (c == '}' || c == ']') {
            if (--depth == 0) {
                *at = here + 1;
                return OK;
            }
        } else if (c == ',') {
            expects_key = true;
        }
        here++;
    }
    *at = n;
    return TRUNCATED;
}

/* Skip any value at `*at`; return a status, and whether a key repeats in an object. */
static int skip_any(const uint8_t *text, int64_t *at, int64_t n, bool *repeats)
{
    const int64_t start = *at;
    if (start >= n || text[start] == '{' || text[start] == '[') {
        if (start < n)
            return skip_nested(text, at, n, text[start] == '{' ? repeats : NULL);
        *at = n;
        return TRUNCATED;
    }
    if (text[start] == '"') {
        int64_t end = skip_string(text, start, n);
        *at = end < 0 ? n : end;
        return end < 0 ? TRUNCATED : OK;
    }
    while (*at < n && !is_space(text[*at]) && !ends_word(text[*at]))
        ++*at;
    return *at == n ? TRUNCATED : *at == start ? WRONG : OK;
}

/* Skip any value at `at`; fill its end. Return a status. */
int64_t skip_value(const uint8_t *text, int64_t at, int64_t *end, int64_t n)
{
    *end = at < 0 ? 0 : at;
    return at < 0 ? WRONG : skip_any(text, end, n, NULL);
}

/* Fill the boundaries of elements from `at` on, which follows `[` or a comma, until `most` bytes are
 * passed. Fill `reached` with how many there are and the position; return a status: OK where the
 * list ended, MORE where there are more. */
int64_t split_list(const uint8_t *text, int64_t at, int64_t *starts, int64_t *ends, bool *repeats,
                   int64_t most, int64_t *reached, int64_t n, int64_t room)
{
    int64_t count = 0, status = at < 0 || room < 1 ? WRONG : OK;
    const int64_t begin = at;
    while (status == OK) {
        at = skip_space(text, at, n);
        if (at >= n) {
            status = TRUNCATED;
            break;
        }
        if (text[at] == ']' && at > 0) {
            int64_t previous = at - 1;
            while (previous > 0 && is_space(text[previous]))
                previous--;
            status = text[previous] == ',' ? WRONG : OK;
            at++;
            break;
        }
        bool again = false;
        const int64_t start = at;
        status = skip_any(text, &at, n, &again);
        if (status != OK)
            break;
        starts[count] = start;
        ends[count] = at;
        repeats[count++] = again;
        at = skip_space(text, at, n);
        if (at >= n)
            status = TRUNCATED;
        else if (text[at] == ',') {
            at++;
            if (count == room || at - begin > most)
                status = MORE;
        } else if (text[at] != ']')
            status = WRONG;
    }
    reached[0] = count;
    reached[1] = at >= n && status == TRUNCATED ? n : at;
    return status;
}
