#ifndef KERNELS_H
#define KERNELS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* CLONES: compiled for three generations of x86-64; their helpers are INLINED. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(WITHOUT_CLONES)
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v2", "arch=x86-64-v3")))
#else
#define CLONES
#endif
#define INLINED static inline __attribute__((always_inline))

#endif
