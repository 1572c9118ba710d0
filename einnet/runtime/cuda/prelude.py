"""What generated CUDA text stands behind, for a device and for a C++ compiler that plays one."""

from __future__ import annotations

PRELUDE = """#ifdef __CUDACC_RTC__
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t; typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#else
#include <cstdint>
#include <cmath>
#endif
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint;
#ifndef __CUDACC__
#define __global__
#define __launch_bounds__(threads)
#define __restrict__
struct einnet_index { int x, y, z; };
static einnet_index blockIdx, threadIdx;
template <class T> static inline T max(T a, T b) { return a > b ? a : b; }
template <class T> static inline T min(T a, T b) { return a < b ? a : b; }
#endif
#ifdef __CUDACC__
#define einnet_aligned(array) array = (float*)__builtin_assume_aligned(array, 16)
#else
#define einnet_aligned(array)
#endif
#define CUDART_INF_F INFINITY
"""
